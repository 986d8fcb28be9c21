# Ends what a test program started and could not end itself, because it panicked, was killed or just ended.
#
# Reads the folders of engines, a line each. Its input ends with the test program. Then every process that
# works in one of the folders is killed, whatever group or session it is in, and the folder removed.
trap '' HUP INT TERM
set --
while IFS= read -r folder; do set -- "$@" "$folder"; done
for folder; do
    # An engine that was dropped took its processes along before its folder.
    [ -d "$folder" ] || continue
    while residents=$(find /proc/[0-9]*/cwd -maxdepth 0 -lname "$folder*" 2>/dev/null) || :; [ "$residents" ]; do
        for resident in $residents; do
            pid=${resident#/proc/}
            kill -9 "${pid%/cwd}" 2>/dev/null
        done
    done
    rm -rf -- "$folder"
done
