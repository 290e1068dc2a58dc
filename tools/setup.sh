#!/bin/sh
# Makes .venv from requirements.lock, once: sh tools/setup.sh PYTHON TORCH_VERSION
#
# A finished .venv carries a stamp; the stamp goes before anything is installed
# and comes back when all of it is, so a .venv without one is half made (the
# install was interrupted) and is made anew. Every failure is one sentence on
# stderr; pip's own words are in .venv/install.log.
set -u
python=$1
torch=$2
stamp=.venv/.installed
log=.venv/install.log

die() { printf '%s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null 2>&1 ||
    die "There is no '$python' on the PATH: install Python 3.11 to 3.14, or name one with 'make PYTHON=/path/to/python3'."
"$python" -c '' >/dev/null 2>&1 ||
    die "'$python' does not run as a Python: install Python 3.11 to 3.14, or name one with 'make PYTHON=/path/to/python3'."
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null ||
    die "'$python' is $("$python" --version 2>&1), but torch $torch and this lab need Python 3.11 to 3.14: name one with 'make PYTHON=python3.12'."
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "'$python' has no venv module: install it ('apt-get install python3-venv' on Debian and Ubuntu), or name another Python with 'make PYTHON=...'."

# Line 1: what a venv cannot survive changing (its place, its Python).
# Line 2: what an install in place can bring up to date.
home="$(pwd -P) $("$python" --version 2>&1)"
files="$(cat requirements.lock pyproject.toml | cksum)"
if [ -f $stamp ] && .venv/bin/python -c 'import sys' 2>/dev/null &&
    [ "$(sed -n 1p $stamp)" = "$home" ]; then
    [ "$(sed -n 2p $stamp)" = "$files" ] && exit 0
else
    # The Python outside of any active venv: that venv may be the one removed here.
    python=$("$python" -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))')
    rm -rf .venv
    "$python" -m venv .venv || die "Python could not make a virtual environment in .venv (its reason stands above)."
fi
rm -f $stamp
: > $log

# Runs pip in the background and says every few seconds what it is at.
install() {
    .venv/bin/python -m pip install --disable-pip-version-check --progress-bar off "$@" >>$log 2>&1 &
    pip=$!
    trap 'kill $pip 2>/dev/null; die "Interrupted: the next make starts the install again."' INT TERM HUP
    ticks=0
    while kill -0 $pip 2>/dev/null; do
        sleep 1
        ticks=$((ticks + 1))
        [ $((ticks % 10)) -eq 0 ] &&
            printf '  %4d s  %s\n' $ticks "$(grep -E '^ *(Collecting|Downloading|Using cached|Installing)' $log | tail -n 1 | cut -c 1-70)"
    done
    trap - INT TERM HUP
    wait $pip && return
    if grep -qE 'NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|Connection(Reset|Error| broken)|ProxyError|SSLError' $log; then
        die "The package index could not be reached: check the network and run make again (pip's words are in $log)."
    elif grep -q 'No space left' $log; then
        die "The disk is full: free about 8 GB and run make again (pip's words are in $log)."
    elif grep -q 'No matching distribution found for torch==' $log; then
        die "torch $torch has no build for this machine (none for Intel Macs, for one): see $log."
    elif grep -q 'No matching distribution' $log; then
        package=$(sed -n 's/.*No matching distribution found for \([^ ]*\).*/\1/p' $log | tail -n 1)
        die "The package index does not offer $package: check the network and pip's settings, and run make again (pip's words are in $log)."
    fi
    die "The install failed: pip says why at the end of $log."
}

echo "Installing into .venv, once (torch is a big download: this can take minutes) ..."
install -r requirements.lock
# The lock holds all that the package needs and the build backend too, so pip
# has nothing to look up or to fetch here.
install --no-deps --no-build-isolation -e .
printf '%s\n%s\n' "$home" "$files" > $stamp
echo "Installed."
