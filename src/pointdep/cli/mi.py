"""``pointdep mi``."""

from __future__ import annotations

from pointdep.cli import options
from pointdep.cli.show import estimate_as_json, print_estimate, print_json


def mi(
    files: options.Files,
    x_columns: options.XColumns = None,
    y_columns: options.YColumns = None,
    groups: options.Groups = None,
    group_column: options.GroupColumn = None,
    method: options.MethodName = "pc",
    method_option: options.MethodOptions = None,
    critic: options.CriticName = "concat",
    hidden: options.Hidden = "256,256",
    discrete: options.Discrete = None,
    folds: options.Folds = 5,
    max_epochs: options.MaxEpochs = 200,
    negatives: options.Negatives = "auto",
    reference_size: options.ReferenceSize = 1024,
    confidence: options.Confidence = 0.95,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Mutual information of paired rows, with an interval.

    For instance:  pointdep mi x.npy y.npy   or   pointdep mi pairs.parquet --x-columns a,b
    --y-columns c
    """
    from pointdep.data.readers import read_pairs

    x, y = read_pairs(files, x_columns=x_columns, y_columns=y_columns)
    model = options.make_model(
        method=method,
        method_options=method_option,
        critic=critic,
        hidden=hidden,
        folds=folds,
        max_epochs=max_epochs,
        negatives=negatives,
        reference_size=reference_size,
        seed=seed,
        device=device,
        discrete=discrete,
        quiet=quiet,
    )
    model.fit(x, y, groups=options.read_groups(groups, group_column, files))
    found = model.mutual_information(confidence=confidence)
    if json:
        print_json("mi", estimate_as_json(model, found))
    else:
        print_estimate(model, found)
