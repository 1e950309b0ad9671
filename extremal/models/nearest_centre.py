"""The class of the nearest centre, as a network: linear scores and a maximum over each class."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from extremal import _check
from extremal.data import GaussianClusters
from extremal.models.provable_constructions import POWERS, Norm, finite_set

_DUAL: dict[str, float] = {"linf": 1.0, "l2": 2.0, "l1": float("inf")}


class NearestCentre(nn.Module):
    """f_c(x) = max over centres mu of class c of <mu, x> - ||mu||^2 / 2.

    The largest one is that of the centre nearest to x in l2. For labels -1 / +1 one output,
    f_{+1} - f_{-1}. N (d + 1) parameters for N centres. Between one centre of each class the
    boundary is the plane half way, so that each centre keeps its class in l2 up to half the
    distance to the nearest foreign one: no classifier holds farther for both.

    Arguments:

    - `centers`: points (N, d), finite; kept in float64.
    - `labels`: the class of each centre (N,): both of -1 and +1, or all of 0..C-1 with C >= 2.
    """

    centers: Tensor
    labels: Tensor

    def __init__(self, centers: Tensor, labels: Tensor) -> None:
        super().__init__()
        self.register_buffer("centers", finite_set("centers", centers))
        self.register_buffer("labels", _check.labels("labels", labels, count=len(self.centers)))
        self.dim = self.centers.shape[1]
        known = self.labels.unique().tolist()
        self.signed = -1 in known
        self.outputs = 1 if self.signed else max(known) + 1
        whole = known == ([-1, 1] if self.signed else list(range(self.outputs)))
        rule = "be both of -1 and +1, or all of 0..C-1 with C >= 2"
        _check.require(whole and len(known) > 1, "labels", rule, known)

    @classmethod
    def of(cls, clusters: GaussianClusters) -> NearestCentre:
        """That of the centres of clusters."""
        _check.instance("clusters", clusters, GaussianClusters, "be GaussianClusters")
        return cls(clusters.centers, clusters.labels)

    @property
    def parameter_count(self) -> int:
        """N (d + 1): the scores' weights and biases; maxima have none."""
        return len(self.centers) * (self.dim + 1)

    def forward(self, x: Tensor) -> Tensor:
        """(n,) where outputs == 1, else (n, outputs)."""
        scores = self._scores(x)
        classes = (-1, 1) if self.signed else range(self.outputs)
        best = torch.stack([scores[:, self.labels == c].amax(1) for c in classes], 1)
        return best[:, 1] - best[:, 0] if self.signed else best

    def proven_radii(self, x: Tensor, y: Tensor, norm: Norm) -> Tensor:
        """The distance to where a foreign centre's score reaches that of the best own centre.

        For each own centre the least of the distances to the planes between it and foreign ones;
        of all own centres the largest. Exact where x's class has one centre.
        """
        _check.choice("norm", norm, POWERS)
        scores = self._scores(x)
        radii = torch.zeros(len(x), dtype=x.dtype, device=x.device)
        for k, label in enumerate(self.labels.tolist()):
            rivals = self.centers[self.labels != label].to(x.dtype)
            slopes = torch.linalg.vector_norm(
                rivals - self.centers[k].to(x.dtype), ord=_DUAL[norm], dim=1
            )
            lead = scores[:, k : k + 1] - scores[:, self.labels != label]
            reach = (lead / slopes).amin(1)
            radii = torch.where(y == label, torch.maximum(radii, reach), radii)
        return radii

    def _scores(self, x: Tensor) -> Tensor:
        """<mu, x> - ||mu||^2 / 2, (n, N)."""
        centers = self.centers.to(x.dtype)
        return x @ centers.T - 0.5 * centers.square().sum(1)
