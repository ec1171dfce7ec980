#!/bin/bash
# The shards of the run 'quickstart', one array task each; written by kvgauge submit.
# A shard that was stopped goes on where it was: submit it again, or run it by hand with
#   SLURM_ARRAY_TASK_ID=1 bash shard.sh
#SBATCH --job-name=quickstart
#SBATCH --array=1-4
#SBATCH --ntasks=1
#SBATCH --output="/home/user/results/results/quick.db.shards/log/shard-%a.log"
#SBATCH --open-mode=append
#SBATCH --requeue
set -euo pipefail

cd /home/user/results
directory=/home/user/results/results/quick.db.shards
shard=$SLURM_ARRAY_TASK_ID

exec /opt/kvgauge/bin/kvgauge run quickstart \
  --shard "$shard/4" --db "$directory/shard-$shard-of-4.db"
