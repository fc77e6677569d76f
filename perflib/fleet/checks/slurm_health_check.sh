#!/bin/sh
# Slurm's HealthCheckProgram: once a boot, is this node like its model? See docs/fleet.md.
# Set FARM, a plan that was collected; perflib and scontrol must be in PATH.
: "${FARM:=/srv/perflib/plan}" "${STATE:=/run/perflib}"
node=${SLURMD_NODENAME:-$(hostname -s)}
mkdir -p "$STATE" && [ ! -e "$STATE/$node.accepted" ] || exit 0
if [ "$1" != measure ]; then # Slurm ends a check and its process group after 60 s
    setsid "$0" measure </dev/null >/dev/null 2>&1 9>"$STATE/$node.lock" &
    sleep 1 && exit 0
fi
flock -n 9 || exit 0 # it is at work already
said=$(perflib accept --against "$FARM" --openmetrics "$STATE/$node.prom")
case $? in
0) rm -f "$STATE/$node.reason" && touch "$STATE/$node.accepted" ;;
3) reason=$(printf '%s\n' "$said" | tail -n 1) && echo "$reason" >"$STATE/$node.reason"
   scontrol update nodename="$node" state=drain reason="$reason" ;;
esac # 4: cannot tell, the next check asks again
