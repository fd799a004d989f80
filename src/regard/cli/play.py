"""`regard play`: the playground in the browser, as one HTML file, or its figures as SVG files."""

import argparse

from regard.playground import export, figures, serve


def run(args: argparse.Namespace) -> int:
    """Write the files, or serve until Ctrl-C."""
    if args.export is not None or args.figures is not None:
        if args.port or args.new_token or args.no_browser:
            raise ValueError(
                "--export and --figures write files and serve nothing; leave the options of the server out"
            )
        if args.export is not None:
            export(args.export)
            print(f"wrote {args.export}: open it in a browser; it needs neither Python nor a network")
        if args.figures is not None:
            print(f"wrote {len(figures(args.figures))} figures to {args.figures}")
        return 0
    if args.new_token and not args.port:
        raise ValueError("--new-token replaces the stored token of a port; it needs --port")

    def announce(address: str) -> None:
        print(f"the playground is at {address}\n(Ctrl-C stops it)", flush=True)

    serve(args.port, False if args.no_browser else None, announce=announce, new_token=args.new_token)
    return 0
