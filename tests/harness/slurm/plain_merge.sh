#!/bin/bash
# Joins the shards of the run 'quickstart' when all are done; written by kvgauge submit.
# Again is harmless: what is merged already stays as it is.
#SBATCH --job-name=quickstart-merge
#SBATCH --ntasks=1
#SBATCH --output="/home/user/results/results/quick.db.shards/log/merge.log"
#SBATCH --open-mode=append
#SBATCH --kill-on-invalid-dep=yes
set -euo pipefail

cd /home/user/results
directory=/home/user/results/results/quick.db.shards
shards=()
for shard in {1..4}; do
  shards+=("$directory/shard-$shard-of-4.db")
done

exec /opt/kvgauge/bin/kvgauge merge /home/user/results/results/quick.db "${shards[@]}"
