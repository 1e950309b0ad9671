"""A scikit-learn classifier that is robust without adversarial training, and can prove it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from extremal import _check, attack, certify
from extremal.data import Dataset
from extremal.evaluate import Robustness, evaluate
from extremal.models import Kaiming, PReLUNet, Preparation, load_with_note, rescaled, save
from extremal.train import adam

Array = NDArray[Any]

# The share of the data that is held out to compare powers, for p="auto".
_HELD_OUT_SHARE = 0.2
# At most so many held-out points are certified to compare powers.
_SELECTION_POINTS = 200
# Outputs are computed for so many points at a time, to bound memory.
_POINTS_PER_BATCH = 4096
# An epoch has at least so many batches, also of few points.
_LEAST_BATCHES_PER_EPOCH = 6
# Features of one unit leave at most this share of their common interval empty, most of them.
_SHARED_UNIT_GAP = 0.1
# The other features of one unit leave at most this share of the common interval empty.
_OUTLIER_UNIT_GAP = 0.5


class RobustScoreWarning(UserWarning):
    """What a health check of `evaluate` says of the attacks behind a `robust_score`."""


class PReLUClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A shallow pReLU network in scikit-learn's form, with radii that it can prove.

    Features are centred and divided inside by their standard deviation (`scale="each"`), or all by
    one number ("one"), or left as they are ("none"). "auto" is "one" where features share a unit
    already, as pixels do (`scale_` tells): most of them span the same interval up to a tenth of
    it, and each of the others half of it, unless it nearly always holds the least value. There a
    deviation of its own would blow up a pixel that is nearly always black, and a tiny change of it
    would change the class. It is "each" otherwise. The network that is kept in `net_` takes the
    user's own units: all radii are in them.

    With one number, or none, each activation is divided by ||x - c||^(p-1), as in Min & Vidal 2024;
    then robustness grows with p on pixels. With "each" it is not, since no tight certificate is
    known for a norm of features in different units, and p = 1 may be as robust as p = 3. Neurons
    have no biases: each looks in one direction from the mean.

    Trained by Adam on the cross-entropy; on small tables more steps than needed cost robustness.
    Every point has the same weight.

    `p="auto"` trains one network for each of `powers` on four fifths of the data, takes the one
    whose certified accuracy at `radius` on the rest (200 points of it at most) is best, and trains
    that p on all. Each point is certified at that radius alone, which costs less than its largest
    one.

    Arguments:

    - `p`: the power of the activation, at least 1, or "auto", see above; 3 by default.
    - `width`: how many neurons the network has, 500 by default.
    - `epochs`: how often all data are visited, 30 by default.
    - `batch_size`: points a step, 100 by default, or a sixth of the data where that is less.
    - `lr`: step size of Adam, 1e-3 by default.
    - `scale`: how features are scaled, "auto" (the default), "each", "one" or "none", see above.
    - `powers`: those that `p="auto"` chooses from, (1, 2, 3, 4) by default.
    - `radius`: where `p="auto"` compares certified accuracies, in l2; None for the median attacked
      radius of the smallest power.
    - `random_state`: seed or generator of all random draws, as everywhere in scikit-learn; None for
      a new one each time.
    """

    def __init__(
        self,
        p: float | Literal["auto"] = 3.0,
        width: int = 500,
        *,
        epochs: int = 30,
        batch_size: int = 100,
        lr: float = 1e-3,
        scale: Literal["auto", "each", "one", "none"] = "auto",
        powers: Sequence[float] = (1.0, 2.0, 3.0, 4.0),
        radius: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.p = p
        self.width = width
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.scale = scale
        self.powers = powers
        self.radius = radius
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, **refused: Any) -> PReLUClassifier:
        """Train the network, and return the classifier.

        `net_` is the network in the user's units, `p_` its power, `scale_` how features were
        scaled, `classes_` the labels.

        Arguments:

        - `X`: features (n, dim).
        - `y`: labels (n,) of any kind.
        - `refused`: nothing else is taken: `sample_weight` is a TypeError, as no point may count
          silently as one.
        """
        if refused:
            reason = "every point has the same weight, so leave points out or repeat them"
            raise TypeError(f"fit takes X and y alone ({reason}), got {', '.join(sorted(refused))}")
        self._check_settings()
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have at least 2 classes, got 1 class: {self.classes_[0]!r}")
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        generator = torch.Generator().manual_seed(int(seed))
        data = Dataset(torch.tensor(X), torch.from_numpy(labels.astype(np.int64)))
        self.p_ = self._selected_power(data, generator) if self.p == "auto" else float(self.p)
        self.net_, self.scale_ = self._trained_network(data, self.p_, generator)
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Outputs (n, C) at `X` (n, dim), or for two classes (n,), above 0 for `classes_[1]`."""
        out = self._outputs(X)
        return out[:, 1] - out[:, 0] if out.shape[1] == 2 else out

    def predict(self, X: ArrayLike) -> Array:
        """The labels (n,) of features `X` (n, dim)."""
        best = self._outputs(X).argmax(1)
        return cast(Array, self.classes_[best])

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities (n, C) of the classes at `X` (n, dim): the softmax of the outputs."""
        return torch.from_numpy(self._outputs(X)).softmax(1).numpy()

    def certified_radius(
        self,
        X: ArrayLike,
        *,
        norm: str = "l2",
        effort: Literal["fast", "tight"] = "tight",
    ) -> Array:
        """For each point a radius (n,) within which the predicted label provably stays the same.

        Arguments:

        - `X`: features (n, dim), in the units of `fit`.
        - `norm`: "l1", "l2" (the default) or "linf", the norm of perturbations.
        - `effort`: of the certificate: "fast", or "tight" (the default) for larger radii in more
          time.
        """
        x = self._points(X)
        with torch.no_grad():
            labels = torch.from_numpy(self._outputs(X).argmax(1))
        return certify.radius(self.net_, x, labels, norm=norm, effort=effort).numpy()

    def robust_score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        radius: float,
        norm: str = "l2",
        *,
        certified: bool = False,
        effort: Literal["fast", "tight"] = "tight",
    ) -> float:
        """The share of points whose label stays right within `radius`.

        What attacks leave is what they leave in `evaluate`, and what its health checks say is a
        `RobustScoreWarning`.

        Arguments:

        - `X`: features (n, dim), in the units of `fit`.
        - `y`: their labels (n,), of those that `fit` saw.
        - `radius`: of perturbations, at least 0, in the units of `X`.
        - `norm`: "l1", "l2" (the default) or "linf", the norm of perturbations.
        - `certified`: False (the default) for the share that the strongest attack leaves, so that
          the truth may be lower; True for the share that is proved, so that it may be higher.
        - `effort`: of the certificate: "fast", or "tight" (the default) for larger radii in more
          time.
        """
        test = self._labelled(X, y)
        radius = _check.number("radius", radius, minimum=0.0)
        if certified:
            held = certify.holds(self.net_, test.x, test.y, radius, norm=norm, effort=effort)
            return float(held.double().mean())
        generator = torch.Generator().manual_seed(0)
        found = evaluate(
            self.net_, test, norm=norm, radii=[radius], certify=False, generator=generator
        )
        for warning in found.warnings:
            told = f"{warning.name}: {warning.sentence}"
            warnings.warn(told, RobustScoreWarning, stacklevel=2)
        return float((found.upper > radius).double().mean())

    def robustness(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        norm: str = "l2",
        effort: Literal["fast", "tight"] = "tight",
    ) -> Robustness:
        """Both sides for every point, with the curve, the headline and warnings: `evaluate`.

        Arguments:

        - `X`: features (n, dim), in the units of `fit`.
        - `y`: their labels (n,), of those that `fit` saw.
        - `norm`: "l1", "l2" (the default) or "linf", the norm of perturbations.
        - `effort`: of the certificate: "fast", or "tight" (the default) for larger radii in more
          time.
        """
        test, generator = self._labelled(X, y), torch.Generator().manual_seed(0)
        return evaluate(self.net_, test, norm=norm, effort=effort, generator=generator)

    def save(self, path: str | Path) -> None:
        """Write the classifier to `path`, in safetensors; labels must be numbers or strings."""
        check_is_fitted(self)
        saved = {
            "classifier": {
                name: _as_json(name, value) for name, value in self.get_params().items()
            },
            "classes": _json_labels(self.classes_),
            "dtype": self.classes_.dtype.str,
            "scale": self.scale_,
            "names": getattr(self, "feature_names_in_", np.array([])).tolist(),
        }
        save(self.net_, path, note=json.dumps(saved))

    @classmethod
    def load(cls, path: str | Path) -> PReLUClassifier:
        """Read from `path` a classifier that `save` wrote; any other file is a ValueError."""
        net, note = load_with_note(path)
        try:
            net = _check.instance("net", net, PReLUNet, "be a PReLUNet")
            saved = json.loads(note)
            self = cls(**saved["classifier"])
            self.classes_ = np.array(saved["classes"], dtype=saved["dtype"])
            self.scale_, names = saved["scale"], saved["names"]
        except (ValueError, TypeError, KeyError):
            rule = "hold a classifier that `save` wrote"
            raise ValueError(f"path must {rule}, got {path}") from None
        self.net_, self.p_, self.n_features_in_ = net, net.p, net.dim
        if names:
            self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def _check_settings(self) -> None:
        if self.p != "auto":
            _check.number("p", self.p, minimum=1.0)
        for name in ("width", "epochs", "batch_size"):
            _check.integer(name, getattr(self, name), minimum=1)
        _check.number("lr", self.lr, above=0.0)
        _check.choice("scale", self.scale, ("auto", "each", "one", "none"))
        powers = [_check.number("powers", power, minimum=1.0) for power in self.powers]
        _check.require(len(powers) > 0, "powers", "hold at least one power", self.powers)
        if self.radius is not None:
            _check.number("radius", self.radius, minimum=0.0)

    def _selected_power(self, data: Dataset, generator: torch.Generator) -> float:
        """The power whose certified accuracy on held-out points is best."""
        train, held = _split(data, _HELD_OUT_SHARE, generator)
        held = held.take(slice(_SELECTION_POINTS))
        powers = sorted(map(float, self.powers))
        nets = {power: self._trained_network(train, power, generator)[0] for power in powers}
        radius = (
            self.radius if self.radius is not None else _median_attacked_radius(nets.values(), held)
        )

        def held_by(power: float) -> tuple[int, int]:
            asked = (radius, 0.0)
            first, right = (certify.holds(nets[power], held.x, held.y, each) for each in asked)
            return int(first.sum()), int(right.sum())

        return max(nets, key=held_by)

    def _trained_network(
        self, data: Dataset, p: float, generator: torch.Generator
    ) -> tuple[PReLUNet, str]:
        """A network in the data's units, and how they were scaled."""
        kind = self.scale if self.scale != "auto" else _scale_for(data.x)
        center, spread = _units(data.x, kind)
        z = ((data.x - center) * spread).float()
        ready = Dataset(z, data.y)
        net = PReLUNet(
            data.dim,
            self.width,
            p,
            len(self.classes_),
            bias=True,
            preparation=Preparation() if kind == "each" else Preparation.for_power(p),
            init=Kaiming(),
            generator=generator,
        )
        batch = min(self.batch_size, max(1, len(ready) // _LEAST_BATCHES_PER_EPOCH))
        adam(net, ready, lr=self.lr, batch=batch, epochs=self.epochs, generator=generator)
        return rescaled(net, center, spread).freeze("neurons", "votes", "bias"), kind

    def _points(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        # A copy: scikit-learn may share memory that can't be written, which PyTorch warns of.
        return torch.tensor(validate_data(self, X, dtype=np.float64, reset=False))

    def _labelled(self, X: ArrayLike, y: ArrayLike) -> Dataset:
        x = self._points(X)
        given = np.asarray(y)
        known = np.isin(given, self.classes_)
        _check.require(bool(known.all()), "y", "hold labels that fit saw", given[~known][:1])
        return Dataset(x, torch.from_numpy(np.searchsorted(self.classes_, given)))

    def _outputs(self, X: ArrayLike) -> Array:
        x = self._points(X)
        with torch.no_grad():
            return torch.cat([self.net_(part) for part in x.split(_POINTS_PER_BATCH)]).numpy()


def _units(x: Tensor, scale: str) -> tuple[Tensor, Tensor]:
    """The mean (dim,), and what to multiply with (dim,): 0 for a feature that does not vary."""
    center = x.mean(0)
    if scale == "none":
        return torch.zeros_like(center), torch.ones_like(center)
    each = (x - center).square().mean(0).sqrt()
    varies = _varying(x)
    if scale == "one":
        each = each[varies].square().mean().sqrt().expand_as(each) if bool(varies.any()) else each
    return center, torch.where(varies, 1.0 / torch.where(varies, each, 1.0), 0.0)


def _varying(x: Tensor) -> Tensor:
    """Which features vary, (dim,) bool."""
    deviation = (x - x.mean(0)).square().mean(0).sqrt()
    return deviation > 1e-12 * x.abs().amax(0)


def _scale_for(x: Tensor) -> Literal["one", "each"]:
    """ "one" where the features of x (n, dim) that vary are of one unit, as far as can be seen."""
    x = x[:, _varying(x)]
    if x.shape[1] < 2:
        return "each"
    low, high = x.amin(0), x.amax(0)
    missed = ((low - low.min()) + (high.max() - high)) / (high.max() - low.min())
    most = 2 * (missed <= _SHARED_UNIT_GAP).sum() > x.shape[1]
    rare = x.median(0).values == low.min()
    return "one" if bool(most & ((missed <= _OUTLIER_UNIT_GAP) | rare).all()) else "each"


def _split(data: Dataset, share: float, generator: torch.Generator) -> tuple[Dataset, Dataset]:
    """Two parts of the data at random, the second one of the given share."""
    order = torch.randperm(len(data), generator=generator)
    count = min(max(1, round(share * len(data))), len(data) - 1)
    return data.take(order[count:]), data.take(order[:count])


def _median_attacked_radius(nets: Iterable[PReLUNet], data: Dataset) -> float:
    """The median attacked radius of the first network that is right anywhere; 0 without one."""
    for net in nets:
        broken = attack.shortest(net, data.x, data.y).radius
        broken = broken[(broken > 0) & broken.isfinite()]
        if len(broken) > 0:
            return float(broken.median())
    return 0.0


def _json_labels(classes: Array) -> list[Any]:
    """Labels as JSON has them."""
    known = classes.dtype.kind in "iufUb" or all(isinstance(label, str) for label in classes)
    seen = classes.dtype
    _check.require(known, "classes_", "be numbers or strings to be saved", seen)
    return cast(list[Any], classes.tolist())


def _as_json(name: str, value: Any) -> Any:
    """A setting as JSON has it; a random state that is no number has none, and is left out."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_as_json(name, one) for one in value]
    return value if isinstance(value, int | float | str | type(None)) else None
