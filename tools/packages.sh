# Sourced by the scripts beside it: installs packages with the machine's package manager.

# The name of the package manager, or nothing.
package_manager() {
    for manager in apt-get dnf apk brew; do
        if command -v "$manager" >/dev/null 2>&1; then
            echo "$manager"
            return
        fi
    done
}

# Runs a command as root: as we are, or through sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        echo "cannot install: $* needs root, and there is no sudo" >&2
        return 1
    fi
}

# Installs the packages given. Output goes to standard error, which is where people look; standard output may be
# somebody's answer.
install_packages() {
    case "$(package_manager)" in
    apt-get)
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >&2 || {
            # The lists of a fresh machine are empty.
            as_root apt-get update >&2
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >&2
        }
        ;;
    dnf) as_root dnf install -y "$@" >&2 ;;
    apk) as_root apk add "$@" >&2 ;;
    brew) brew install "$@" >&2 ;;
    *)
        echo "no package manager found (apt, dnf, apk or brew): install $* yourself" >&2
        return 1
        ;;
    esac
}
