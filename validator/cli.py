"""The command line: what was asked for, in which order it is done, and the exit status.

0: nothing found; 1: errors or warnings were found (with `--diff`: fixes would change something); 2: wrong
usage or configuration, or an internal error. Notes never count. As for every program, 130 says that it was
interrupted, and 141 that nobody read on.

A run of which the cache knows everything imports only what stands at the top of this module: start-up is what
people wait for. Everything else is imported where it is used.
"""

from __future__ import annotations

import argparse
import os

from validator import pin_packages
from validator.errors import UsageError
from validator.files import streams
from validator.run import arguments as command_line
from validator.run import config, running
from validator.run.reporting import report


def main(arguments: list[str] | None = None) -> int:
    """Run the validator; the exit status. `arguments` are those of the command line without the program."""
    pin_packages()
    try:
        streams.prepare()
        status = _status(arguments)
        streams.flush()
        return status
    except UsageError as error:
        streams.say(f"error: {error}")
        return 2
    except BrokenPipeError:
        streams.lose_reader()
        return 141
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:
        if os.environ.get("MESHPROOF_TRACEBACK"):
            raise
        from validator.errors import told

        streams.say(f"internal error: {told(error)}; set MESHPROOF_TRACEBACK=1 for the whole story")
        return 2


def interrupted() -> int:
    """Let the process end in peace: people press Ctrl-C more than once. The exit status."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return 130


def _status(arguments: list[str] | None) -> int:
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(f"the working directory cannot be found: {error.strerror}; change to another") from error
    try:
        options = command_line.parser().parse_args(arguments)
    except SystemExit as done:  # --help and --version, which have printed
        streams.flush()
        return int(done.code or 0)
    return _dispatch(options)


def _dispatch(options: argparse.Namespace) -> int:
    command_line.check_values(options)
    options.fix = options.fix or options.fix_only
    settings = command_line.settings_of(options)
    if options.show_config:
        return streams.write(config.shown(settings), options.output)
    if options.explain or options.list_rules:
        from validator import explain

        rules = explain.known(settings.rules)
        text = (
            explain.listed(rules, options.format == "json")
            if options.list_rules
            else explain.explained(rules, options.explain)
        )
        return streams.write(text, options.output)
    command_line.check_combinations(options)
    if options.why:
        return streams.write(running.told_of(options, settings), options.output)
    if settings.rules_refused:
        streams.say(f"user rules are not loaded: {settings.rules_refused} (see --rules)")
    running.tell_of_left_out(options, settings)
    if options.fix or options.diff or options.add_ignore:
        from validator.run import fixing

        return fixing.run(options, settings)
    if "-" in options.paths:
        return report(options, settings, running.of_standard_input(options, settings))
    return report(options, settings, running.findings(options, settings))
