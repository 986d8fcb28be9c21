# Reads a process group's number, waits for the end of its standard input, and then kills that group and every process
# whose environment has the line $0. Engines have guardians of their own, which also remove their folders: processes in
# other groups get ten seconds to end by themselves. Ends with 1 if one of them had to be killed.
read -r group
read -r line
[ -n "$group" ] && kill -KILL -"$group" 2>/dev/null
round=0
left_behind=0
while [ "$round" -lt 200 ]; do
    # Processes that are gone by now, or another user's, are no match, but grep says that it failed.
    found=$(grep -lzxsF -e "$0" /proc/[0-9]*/environ)
    [ -n "$found" ] || break
    if [ "$round" -ge 100 ]; then
        left_behind=1
        for process in $found; do
            process=${process#/proc/}
            kill -KILL "${process%/environ}" 2>/dev/null
        done
    fi
    round=$((round + 1))
    sleep 0.1
done
exit "$left_behind"
