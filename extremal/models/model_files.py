"""Model files, safetensors with a JSON header, and the networks that come with the package.

Nothing in a file is ever executed.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from extremal import _check
from extremal._files import as_path, read_tensors, tensor_digest, write_whole
from extremal._version import __version__
from extremal.models.conversion import rescaled
from extremal.models.initialisation import Explicit
from extremal.models.prelu_net import PReLUNet
from extremal.models.preparation import Preparation
from extremal.models.readouts import Grouped

# The name of the files' form, which is part of each file.
_MODEL_FORMAT = "extremal-model-1"

# The networks that come with the package lie here.
_NETWORK_FOLDER = Path(__file__).parent / "networks"


def included_networks() -> tuple[str, ...]:
    """The names of the networks that `load` knows, such as "mnist-p3"; README.md is their card."""
    return tuple(sorted(path.stem for path in _NETWORK_FOLDER.glob("*.safetensors")))


def included_file(name: str) -> Path:
    """The file of a network that comes with the package."""
    return _NETWORK_FOLDER / f"{name}.safetensors"


def save(net: nn.Module, path: str | Path, *, note: str = "") -> None:
    """Write a `PReLUNet`, or a `Grouped` one, to `path`, whole or not at all.

    Where that fails it is a `FileError`, a ValueError with the path and the reason.

    Arguments:

    - `net`: the network; any other kind is refused.
    - `path`: the file that is written.
    - `note`: a text that is kept in the file for `load_with_note`; empty by default.
    """
    inner = net.net if isinstance(net, Grouped) else net
    inner = _check.instance("net", inner, PReLUNet, "be a PReLUNet or a Grouped one")
    header: dict[str, Any] = {
        "p": inner.p,
        "normalize": inner.preparation.normalize,
        "frozen": [name for name, part in inner.named_parameters() if not part.requires_grad],
        "scale": inner.preparation.scale,
    }
    tensors = {name: part.detach().contiguous() for name, part in inner.named_parameters()}
    if inner.preparation.center is None:
        header["center"] = None
    else:
        tensors["preparation.center"] = inner.preparation.center.contiguous()
    if note:
        header["note"] = note
    if isinstance(net, Grouped):
        header["grouped"] = {"groups": net.groups.tolist(), "signed": net.signed}
    network = json.dumps(header)
    metadata = {
        "format": _MODEL_FORMAT,
        "version": __version__,
        "network": network,
        "digest": tensor_digest(network, tensors, separator=""),
    }
    write_whole(path, to_bytes(tensors, metadata=metadata))


def load(path: str | Path) -> nn.Module:
    """Read a network that `save` wrote; a missing, broken or foreign file is a ValueError.

    Files of earlier versions may have a scale for each coordinate, which becomes part of the
    weights (`rescaled`); it is a ValueError if the network normalises too, unless all are equal.

    `path` may also be the name of a network that comes with the package (`included_networks`), for
    images of `data.load`; a file of that name goes first. Those are kept in float16, and come in
    float32.
    """
    return load_with_note(path)[0]


def load_with_note(path: str | Path) -> tuple[nn.Module, str]:
    """A network as `load` reads it, and the note that was saved with it, or "".

    Arguments:

    - `path`: a file, or the name of a network that comes with the package, as in `load`.
    """
    file = as_path(path)
    if not file.is_file() and str(path) in included_networks():
        net, note = load_with_note(included_file(str(path)))
        return net.float(), note
    known = ", ".join(included_networks())
    _check.require(file.is_file(), "path", f"name an existing model file, or one of {known}", file)
    try:
        metadata, tensors = read_tensors(file)
        _check.choice("format", metadata.get("format"), [_MODEL_FORMAT])
        network, digest = metadata["network"], metadata["digest"]
        intact = digest == tensor_digest(network, tensors, separator="")
        _check.require(intact, "digest", "be that of the content", digest)
        header = json.loads(network)
        return _network_from(header, tensors), str(header.get("note", ""))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        # What torch.save writes is a ZIP archive; it is not read, since it could run code.
        theirs = "a file of torch.save: load it in Python, then ex.models.from_torch(module).save"
        why = theirs if zipfile.is_zipfile(file) else repr(error)
        raise ValueError(
            f"path must be a model file that extremal can read, got {path} ({why})"
        ) from error


def _network_from(header: dict[str, Any], tensors: dict[str, Tensor]) -> nn.Module:
    neurons, votes = tensors["neurons"], tensors["votes"]
    center, scale = tensors.get("preparation.center"), tensors.get("preparation.scale")
    normalize = header["normalize"]
    if scale is None:
        preparation = Preparation(header.get("scale", 1.0), center, normalize)
    else:
        preparation = Preparation(normalize=normalize)
    net = PReLUNet(
        dim=neurons.shape[1],
        width=neurons.shape[0],
        p=header["p"],
        outputs=votes.shape[0],
        bias="bias" in tensors,
        hidden_bias="hidden_bias" in tensors,
        preparation=preparation,
        init=Explicit(neurons, votes, tensors.get("hidden_bias"), tensors.get("bias")),
        dtype=neurons.dtype,
        generator=torch.Generator(),
    )
    if scale is not None:  # In earlier files a scale may be a tensor (dim,).
        net = rescaled(net, center, scale).to(neurons.dtype)
    net.freeze(*header["frozen"])
    if "grouped" not in header:
        return net
    groups = torch.tensor(header["grouped"]["groups"])
    return Grouped(net, groups, signed=header["grouped"]["signed"])
