#!/bin/bash
# Tries a batch on a real Slurm with two nodes on one machine: bash slurm.sh ATTNSCOPE
#
# Needs root, and Debian's slurm-wlm and munge. It writes /etc/slurm/slurm.conf, starts munged, slurmctld and two slurmd, and stops
# them at the end. An array of 8 tasks runs; one task is killed, one is requeued; what is missing is submitted again. The merged table
# must be that of one process, byte for byte.
set -eu
program=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d "${TMPDIR:-/tmp}/attnscope-slurm-XXXXXX")
chmod 755 "$work"
host=$(hostname -s)

slurmctld -V
mkdir -p /run/munge "$work/state" "$work/spool1" "$work/spool2"
chown munge /run/munge
cat > /etc/slurm/slurm.conf <<CONF
ClusterName=trial
SlurmctldHost=$host
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=5
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
NodeName=node1 NodeHostname=$host NodeAddr=127.0.0.1 Port=17001 CPUs=2 State=UNKNOWN
NodeName=node2 NodeHostname=$host NodeAddr=127.0.0.1 Port=17002 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=node1,node2 Default=YES State=UP
CONF
mkdir -p "$work/spoolnode1" "$work/spoolnode2"
runuser -u munge -- munged --force
slurmctld
for node in node1 node2; do slurmd -N "$node"; done
stop() {
    scontrol shutdown >/dev/null 2>&1 || true
    sleep 1
    for pid in "$work"/slurm*.pid /run/munge/munged.pid; do
        [ -f "$pid" ] && kill "$(cat "$pid")" 2>/dev/null || true
    done
}
trap stop EXIT
for _ in $(seq 50); do
    [ "$(sinfo -h -t idle -o %D)" = 2 ] && break
    sleep 0.2
done
sinfo

python3 "$here/checkpoints.py" "$work" 24 200
cat > "$work/batch.sh" <<JOB
#!/bin/bash
#SBATCH --job-name=attention
#SBATCH --array=0-7
#SBATCH --cpus-per-task=1
#SBATCH --requeue
#SBATCH --output=$work/task-%a.log --open-mode=append
exec $program batch $work/steps --inputs $work/prompts.jsonl --output $work/batch --chunk 10
JOB
units() { find "$work/batch/parts" -name '*.json' 2>/dev/null | wc -l; }
finished() { while [ -n "$(squeue -h)" ]; do sleep 0.2; done; }

job=$(sbatch --parsable "$work/batch.sh")
until [ "$(units)" -gt 20 ]; do sleep 0.05; done
squeue
running=$(squeue -h -t running -o %i | head -2)
first=$(echo "$running" | sed -n 1p)
second=$(echo "$running" | sed -n 2p)
echo "kill $first after $(units) units; requeue $second"
scancel --signal=KILL --full "$first" || true
[ -n "$second" ] && scontrol requeue "$second" || true
finished
echo "after the array: $(units) of 480 units"
"$program" merge "$work/batch" --output "$work/table.parquet" || echo "merge says $?"
echo "submit task ${first##*_} again"
sbatch --parsable --array="${first##*_}" "$work/batch.sh"
finished
echo "after that: $(units) of 480 units"
tail -n 1 "$work"/task-*.log

"$program" batch "$work/steps" --inputs "$work/prompts.jsonl" --output "$work/one" --chunk 10 --quiet
"$program" merge "$work/batch" --output "$work/table.parquet" --force | head -n 1
"$program" merge "$work/one" --output "$work/one.parquet" | head -n 1
cmp "$work/table.parquet" "$work/one.parquet" && echo "the merged table is that of one process, byte for byte"

echo "a task that is told to end (scancel --signal=TERM):"
rm -r "$work/batch"
job=$(sbatch --parsable --array=0 "$work/batch.sh")
until [ "$(units)" -gt 5 ]; do sleep 0.02; done
scancel --signal=TERM --full "$job"
finished
sleep 1
scontrol show job "$job" | grep -E "JobState|ExitCode"
find "$work/batch/parts" -name '.tmp*' | wc -l
