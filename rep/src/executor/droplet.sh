# Starts a droplet whose archive is unpacked in this directory: the start command, in the directory of the app, with the
# app's profile; else the script that staging has left.
if [ -n "$DROPLET_COMMAND" ]; then
    if [ -d app ]; then cd app || exit 1; fi
    HOME=$PWD
    export HOME
    for profile in .profile.d/*.sh; do
        if [ -r "$profile" ]; then . "./$profile"; fi
    done
    exec sh -c "$DROPLET_COMMAND"
fi
if [ -x ./startup ]; then exec ./startup; fi
if [ -f ./startup ]; then exec sh ./startup; fi
echo 'the droplet has neither a start command nor a script named startup' >&2
exit 1
