"""python -m fuzz [targets] [--cases 300] [--seed 0] [--output FILE.json]: damage, read, count."""

import argparse
import json
import sys
import time
from pathlib import Path

from fuzz.sweep import sweep, table
from fuzz.targets import FILES, TARGETS


def main():
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(TARGETS), metavar="TARGET")
    parser.add_argument("--cases", type=int, help="of each; else 20000 of files, 10000 of others")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="the counts as JSON, merged into what is there")
    asked = parser.parse_args()
    results, told = {}, 0
    for name in asked.targets:
        start = time.process_time(), time.time()
        cases = asked.cases or (20_000 if name in FILES else 10_000)
        results[name], faults = sweep(name, cases, asked.seed)
        for case, outcome, said in faults[:20]:
            print(f"{name} case {case}: {outcome}: {said}", file=sys.stderr)
        told += len(faults)
        if asked.output is not None:
            before = json.loads(asked.output.read_text()) if asked.output.exists() else {}
            one = {"seed": asked.seed, "cases": cases, **dict(sorted(results[name].items()))}
            before[name] = one
            asked.output.write_text(json.dumps(dict(sorted(before.items())), indent=1) + "\n")
        print(f"{name}: {time.time() - start[1]:.0f} s", file=sys.stderr, flush=True)
    print(table(results))
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
