#!/bin/bash
# The shards of the run 'all of it', one array task each; written by kvgauge submit.
# A shard that was stopped goes on where it was: submit it again, or run it by hand with
#   SLURM_ARRAY_TASK_ID=1 bash shard.sh
#SBATCH --job-name=all_of_it
#SBATCH --array=1-4%2
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --output="/home/user/results/results/quick.db.shards/log/shard-%a.log"
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --partition=gpu,long
#SBATCH --time=1-12:00:00
#SBATCH --mem=16G
set -euo pipefail

cd /home/user/results
directory=/home/user/results/results/quick.db.shards
shard=$SLURM_ARRAY_TASK_ID

exec /opt/kvgauge/bin/kvgauge run '/home/user/my runs/all.json' \
  --shard "$shard/4" --db "$directory/shard-$shard-of-4.db" --threads 8 \
  --limit 100 --only 'it'\''s $HOME'
