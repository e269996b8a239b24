"""The deep models: SimCLR (a ResNet) and AMDIM, trained on two random views of each image."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pointdep.contrastive.distributed import all_sum, gather, row_counts, world
from pointdep.contrastive.encoders.amdim import AMDIMEncoder, FeatureMaps
from pointdep.contrastive.encoders.resnet import ProjectionHead, ResNet
from pointdep.contrastive.losses import LOSSES, CPCLoss
from pointdep.contrastive.losses.contrastive_loss import FREE_SPREAD, spread
from pointdep.contrastive.pretraining.protocols import METHOD_OF, Settings
from pointdep.contrastive.pretraining.recipes import Recipe
from pointdep.contrastive.views import TwoViews, amdim_views, as_rgb, evaluation_view, simclr_views
from pointdep.core.methods import get_method
from pointdep.data.images import ImageSet
from pointdep.errors import Flag, InputError, require_known

_RISE = 0.1  # share of a SimCLR run in which the rate rises
_RISE_STEPS = 500  # the same for AMDIM, in steps
_DROPS = (250 / 300, 280 / 300)  # shares of an AMDIM run after which the rate falls to a fifth
_Batch = tuple[Tensor, Tensor, Tensor]
_WHOLE_MATRIX = {"dm2"}  # not a mean over rows, so that each process needs all of them


class TwoViewRecipe(Recipe):
    """An encoder of 32 x 32 colour images that learns from two random views of each."""

    make_views: Callable[[], TwoViews]

    def __init__(self, settings: Settings, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(settings, shape, classes)
        (self.objective, _), *others = settings.runs
        if others:
            raise InputError(f"{settings.model} trains one objective and seed per run")
        self.views, self.plain = type(self).make_views(), evaluation_view()
        self._make_views = self.views.apply

    def prepare_images(self, images: Tensor) -> Tensor:
        return as_rgb(images)

    @torch.no_grad()
    def two_views(self, images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
        """rows: (1, n) -> (2, n, 3, h, w)."""
        chosen = images[rows[0]]
        height, width = chosen.shape[-2:]
        return self._make_views(chosen, self.views.draw(len(chosen), height, width, generator))

    def plain_views(self, images: Tensor) -> Tensor:
        """uint8 images, (n, 3, h, w), as the network takes them without any augmentation."""
        return self.plain(images, torch.Generator(images.device))

    def compile_parts(self) -> None:
        self._make_views = torch.compile(self.views.apply)


class SimCLR(TwoViewRecipe):
    """A ResNet with the CIFAR stem, a projection head, and any of the losses between views.

    Network and views are those of the public recipe for CIFAR-10; optimiser and rate are ours.
    """

    make_views = staticmethod(simclr_views)

    def __init__(self, settings: Settings, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(settings, shape, classes)
        self.encoder = ResNet(settings.filled.depth, width=settings.filled.width)
        self.head = ProjectionHead(self.encoder.feature_dim)
        self.loss = LOSSES[self.objective](**{"negatives": "all", **settings.loss})
        self._network = self._in_turn

    @classmethod
    def loss_options(cls, objective: str) -> list[str]:
        parameters = inspect.signature(LOSSES[objective]).parameters.values()
        return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]

    def batch(self, images: ImageSet, rows: Tensor, generator: torch.Generator) -> Tensor:
        """-> (2, n, 3, h, w)."""
        return self.two_views(images.train, rows, generator)

    def forward(self, views: Tensor) -> Tensor:
        first, second = self.project(views.flatten(0, 1)).chunk(2)
        return torch.stack([self.loss(first, second)])

    def project(self, views: Tensor) -> Tensor:
        """Views, (n, 3, h, w), as `batch` makes them -> what the loss compares, (n, 128)."""
        return self._network(_laid_out(views))

    def _in_turn(self, views: Tensor) -> Tensor:
        projected: Tensor = self.head(self.encoder(views))
        return projected

    def optimizer(self, learning_rate: float | Tensor) -> torch.optim.Optimizer:
        networks = [*self.encoder.parameters(), *self.head.parameters()]
        groups: list[dict[str, Any]] = [{"params": networks}]
        if own := list(self.loss.parameters()):  # weight decay would pull a learned scale to one
            groups.append({"params": own, "weight_decay": 0.0})
        how: dict[str, Any] = {"momentum": 0.9, "weight_decay": 5e-4, "fused": self.fused()}
        return torch.optim.SGD(groups, lr=learning_rate, **how)

    def rate(self, done: float, step: int) -> float:  # noqa: ARG002
        """A linear rise, then down along a cosine."""
        if done < _RISE:
            return max(done, 1e-3) / _RISE
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, (done - _RISE) / (1.0 - _RISE))))

    def compile_parts(self) -> None:
        self._network = torch.compile(self._in_turn)
        super().compile_parts()

    def encode(self, images: Tensor) -> Tensor:
        features: Tensor = self.encoder(_laid_out(self.plain_views(images)))
        return features

    @torch.no_grad()
    def pmi(self, first: Tensor, second: Tensor) -> Tensor:
        """log r of two views of one image each, both (n, 3, h, w) as `batch` makes them -> (n,)."""
        return self.loss.pmi(self.project(first), self.project(second))

    @torch.no_grad()
    def remember(self, images: Tensor, generator: torch.Generator) -> None:
        if isinstance(self.loss, CPCLoss):
            rows = torch.arange(len(images), device=images.device)[None]
            self.loss.set_reference(self.project(self.two_views(images, rows, generator)[1]))

    @property
    def flags(self) -> tuple[Flag, ...]:
        return self.loss.flags


class AMDIM(TwoViewRecipe):
    """Feature maps of 1, 5 and 7 cells per side, and the costs `GlobalToLocal` between views.

    Settings are the paper's; classifiers of detached features train at the same time. Objectives
    for which the paper gives no settings have those of PCC.
    """

    make_views = staticmethod(amdim_views)
    spread: Tensor

    def __init__(self, settings: Settings, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(settings, shape, classes)
        ndf, depth, normed = settings.filled.width, settings.filled.depth, self.objective != "cpc"
        features = 8 * ndf
        self.encoder = AMDIMEncoder(ndf=ndf, n_rkhs=features, depth=depth, batch_norm=normed)
        self.costs = GlobalToLocal(self.objective, **settings.loss)
        self.linear = nn.Linear(features, classes)
        self.perceptron = nn.Sequential(
            nn.Dropout(0.2),
            nn.Linear(features, 1024, bias=False),
            nn.BatchNorm1d(1024),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(1024, classes),
        )
        self.register_buffer("spread", torch.ones(()), persistent=False)

    @classmethod
    def loss_options(cls, objective: str) -> list[str]:
        # Scores that are ratios are neither clipped nor kept small.
        return {"drfc": ["alpha"], "rpc": []}.get(objective, ["clip", "regulariser"])

    def batch(self, images: ImageSet, rows: Tensor, generator: torch.Generator) -> _Batch:
        """-> views (2, n, 3, 32, 32), labels (n,), the cells of the 5 to 5 cost (2, n)."""
        views = self.two_views(images.train, rows, generator)
        cells = torch.randint(25, views.shape[:2], generator=generator, device=views.device)
        return views, images.train_labels[rows[0]], cells

    def forward(self, batch: _Batch) -> Tensor:
        views, labels, cells = batch
        first, second = (self.encoder(_laid_out(view)) for view in views)
        costs, regulariser = self.costs(first, second, cells)
        cost = costs.sum() + regulariser
        features = torch.cat([first.one, second.one]).detach()
        self.spread.copy_(spread(features.float()))
        classifiers = (self.linear, self.perceptron)
        both = labels.repeat(2)
        entropies = [F.cross_entropy(one(features).float(), both) for one in classifiers]
        beside = torch.stack(entropies).sum()
        # The classifiers learn, and the value stays that of the cost.
        return torch.stack([cost + (beside - beside.detach())])

    def optimizer(self, learning_rate: float | Tensor) -> torch.optim.Optimizer:
        recorded = isinstance(learning_rate, Tensor)
        how: dict[str, Any] = {"fused": self.fused(), "capturable": recorded, "weight_decay": 1e-5}
        return torch.optim.Adam(self.parameters(), learning_rate, (0.8, 0.999), **how)

    def rate(self, done: float, step: int) -> float:
        """A linear rise over 500 steps; a fifth after 250 of 300 epochs, again after 280."""
        return min(1.0, (step + 1) / _RISE_STEPS) * 0.2 ** sum(done >= drop for drop in _DROPS)

    def clips_gradient(self, step: int) -> bool:
        return self.objective != "cpc" and (self.objective == "drfc" or step >= _RISE_STEPS)

    def compile_parts(self) -> None:
        self.encoder.compile()
        super().compile_parts()

    def encode(self, images: Tensor) -> Tensor:
        features: Tensor = self.encoder.features(self.plain_views(images))
        return features

    @property
    def flags(self) -> tuple[Flag, ...]:
        if self.spread.item() >= FREE_SPREAD:
            return ()
        return (Flag("collapsed", (0,), "the features of all images are the same"),)


def _laid_out(views: Tensor) -> Tensor:
    """In the memory format in which a GPU's convolutions are fastest."""
    on_gpu = views.device.type == "cuda"
    return views.contiguous(memory_format=torch.channels_last) if on_gpu else views


class GlobalToLocal(nn.Module):
    """AMDIM's loss: the sum of the costs 1->5, 1->7 and 5->5, each the mean of both directions.

    In the cost a->b the vector of image i from map a of one view meets every cell of map b of the
    other view, of all images: the cells of image i are samples of the joint, those of the OTHER
    images samples of the product. The source of 5->5 is one cell per image, drawn at random. A
    score is the inner product over sqrt(n_rkhs).

    Objectives whose scores are log r (cpc, pcc, variational, dm1 and dm2) add `regulariser` times
    the mean squared score and then clip it smoothly, clip * tanh(s / clip). drfc (in its relative
    form, `alpha`) and rpc do neither. cpc's value is relative to chance, as everywhere in this
    library: it differs from a plain cross-entropy by the log of the number of candidates.

    With torch.distributed the cells of all processes are compared, and every process returns the
    cost of the joined batch (see `pointdep.contrastive.distributed`).
    """

    def __init__(
        self, objective: str, *, alpha: float = 0.01, clip: float = 20.0, regulariser: float = 0.05
    ) -> None:
        super().__init__()
        require_known("objective", objective, METHOD_OF)
        for name, value in {"alpha": alpha, "clip": clip, "regulariser": regulariser}.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{name}={value!r} must be a number")
        if not 0.0 <= alpha < 1.0:
            raise InputError(f"alpha={alpha} is outside [0, 1)")
        if clip <= 0.0 or regulariser < 0.0:
            raise InputError(f"clip={clip} must be above zero, regulariser={regulariser} not below")
        method = get_method(METHOD_OF[objective], {"alpha": alpha} if objective == "drfc" else {})
        self.objective, self.bounded = method.objective, not method.scores_ratio
        self.whole = objective in _WHOLE_MATRIX
        self.clip, self.regulariser = clip, regulariser

    def forward(self, maps1: FeatureMaps, maps2: FeatureMaps, cells: Tensor) -> list[Tensor]:
        """The three costs, (3,), and the regulariser, (), of two views of the same n images.

        Their sum is to be minimised. cells: (2, n), which of the 25 cells of each view is the
        source of 5->5.
        """
        views, n = (maps1, maps2), len(maps1.one)
        ones = [maps.one for maps in views]
        fives = [
            maps.five.flatten(2).take_along_dim(chosen[:, None, None], 2).squeeze(2)
            for maps, chosen in zip(views, cells, strict=True)
        ]
        five_cells = [_joined_cells(maps.five) for maps in views]
        seven_cells = [_joined_cells(maps.seven) for maps in views]
        if len(five_cells[0]) < 2:
            raise InputError("a batch of one image has no product samples: two are needed")
        counts = row_counts(maps1.one)
        start = sum(counts[: world()[0]])
        if self.whole:
            start = 0
            ones, fives = ([gather(rows) for rows in sources] for sources in (ones, fives))
        parts = torch.stack(
            [
                # From view 1 to view 2, and from view 2 to view 1.
                (self._cost(a[0], b[1], start) + self._cost(a[1], b[0], start)) / 2
                for a, b in ((ones, five_cells), (ones, seven_cells), (fives, five_cells))
            ]
        )
        if not self.whole:
            parts = all_sum(parts * (n / sum(counts)))
        costs, squares = parts.unbind(1)
        return [costs, squares.sum()]

    def _cost(self, source: Tensor, cells: Tensor, start: int) -> Tensor:
        """The cost and the regulariser, (2,). source: (rows, d), cells: (images, L, d).

        Row i is of image start + i.
        """
        images, places, width = cells.shape
        scores = source @ cells.flatten(0, 1).T
        # The product may run in half precision; what is made of it may not.
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32)) / width**0.5
        squares = scores.new_zeros(())
        if self.bounded:
            squares = self.regulariser * scores.square().mean()
            scores = self.clip * torch.tanh(scores / self.clip)
        rows = torch.arange(start, start + len(source), device=scores.device)
        own = rows[:, None] == torch.arange(images, device=scores.device)
        joint = own[:, :, None].expand(-1, -1, places).flatten(1)
        return torch.stack([-self.objective(scores, joint=joint, product=~joint), squares])


def _joined_cells(feature_map: Tensor) -> Tensor:
    """The cells of all processes: (n, d, h, w) -> (images, h * w, d)."""
    return gather(feature_map.flatten(2).transpose(1, 2))
