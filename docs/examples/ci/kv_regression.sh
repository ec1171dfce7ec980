#!/usr/bin/env bash
# Fails when KV-cache compression got worse than a stored baseline: accuracy, bytes, latency.
#
#   kv_regression.sh [--config FILE] [--baseline FILE] [--margins FILE] [--out DIR] [--strict]
#                    [--resume]                  go on with a run of the same code that was stopped
#   kv_regression.sh --update-baseline [...]     run, and make the result the baseline; failed
#                                                samples are refused
#
# Works in any CI system, from any directory. Writes OUT/candidate.db, OUT/gate.md, OUT/gate.xml
# (JUnit). Exit codes: 0 pass, 1 something is worse, 2 something cannot be compared or bad usage,
# 3 undecided, with --strict. KVGAUGE names the program when it is not on PATH.
set -euo pipefail

kvgauge=${KVGAUGE:-kvgauge}
config=kv-regression.json
baseline=kv-baseline.db
margins=()
strict=()
out=kv-regression
update=no
resume=no

usage() {
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
while [[ $# -gt 0 ]]; do
  case $1 in
    --config | --baseline | --margins | --out)
      [[ $# -ge 2 ]] || usage
      case $1 in
        --config) config=$2 ;;
        --baseline) baseline=$2 ;;
        --margins) margins=(--margins "$2") ;;
        --out) out=$2 ;;
      esac
      shift 2
      ;;
    --strict)
      strict=(--strict)
      shift
      ;;
    --resume)
      resume=yes
      shift
      ;;
    --update-baseline)
      update=yes
      shift
      ;;
    *) usage ;;
  esac
done
if ! command -v "$kvgauge" >/dev/null; then
  echo "kv_regression: no program '$kvgauge'; put kvgauge on PATH or set KVGAUGE" >&2
  exit 2
fi
if [[ $update == no && ! -f $baseline ]]; then
  echo "kv_regression: no baseline '$baseline'; make one with --update-baseline" >&2
  exit 2
fi

mkdir -p "$out"
# What an older program recorded says nothing of this one.
if [[ $resume == no ]]; then
  rm -f "$out"/candidate.db "$out"/candidate.db-wal "$out"/candidate.db-shm "$out"/gate.{md,xml}
fi
"$kvgauge" run "$config" --db "$out/candidate.db"

if [[ $update == yes ]]; then
  # Nothing could get worse than a failure.
  failed=$("$kvgauge" leaderboard "$out/candidate.db" --format csv --columns failed |
    awk 'NR > 1 { sum += $1 } END { print sum + 0 }')
  if [[ $failed -gt 0 ]]; then
    echo "kv_regression: $failed failed samples in $out/candidate.db, a baseline must have none;" \
      "'$kvgauge leaderboard $out/candidate.db --all' says which rows and why" >&2
    exit 2
  fi
  # Merged rather than copied: one whole file, with nothing left in the log of the database.
  rm -f "$out/baseline.db"
  "$kvgauge" merge "$out/baseline.db" "$out/candidate.db"
  mv "$out/baseline.db" "$baseline"
  echo "baseline: $baseline"
  exit 0
fi

code=0
"$kvgauge" gate --baseline "$baseline" --candidate "$out/candidate.db" "${margins[@]}" \
  "${strict[@]}" --markdown "$out/gate.md" --junit "$out/gate.xml" || code=$?
# GitHub and Forgejo show this file on the page of the run.
if [[ -n ${GITHUB_STEP_SUMMARY:-} && -f $out/gate.md ]]; then
  cat "$out/gate.md" >>"$GITHUB_STEP_SUMMARY"
fi
exit "$code"
