"""The numbers of a run's events: their names, by kind of event, and what each means.

Names are a type: mypy refuses a misspelt one where a number is read.
"""

from collections.abc import Mapping
from typing import Literal

NumberName = Literal[
    "added",
    "again",
    "backwards",
    "batches",
    "batchnorm",
    "clip_value",
    "clipped",
    "collected",
    "cosine",
    "create",
    "divided",
    "dropout",
    "empty",
    "eval",
    "exhausted",
    "found_inf",
    "freed",
    "fresh",
    "in_place",
    "inputs",
    "loss",
    "lr",
    "lr_after",
    "lr_before",
    "manual",
    "max_norm",
    "nodes",
    "none",
    "nonfinite",
    "norm",
    "norm_after",
    "norm_type",
    "older",
    "parameters",
    "reached",
    "reduction",
    "repeated",
    "retain",
    "root",
    "rows",
    "scale",
    "scale_after",
    "scale_before",
    "scaled",
    "scope",
    "set_to_none",
    "skipped",
    "spent",
    "stale",
    "sum",
    "tokens",
    "unspent",
    "with_gradient",
    "written",
]
"""Name of a number. Flags are 1.0 or 0.0; counts are whole numbers."""

_BACKWARD: Mapping[NumberName, str] = {
    "again": "whether an earlier backward of the step began at the same node",
    "create": "whether it builds a graph of itself (`create_graph`)",
    "divided": "number that the loss was divided by",
    "loss": "value of the loss, without the scale of a gradient scaler",
    "nodes": "nodes of the graph, where they were counted",
    "older": "whether the graph reaches back before the step before",
    "reduction": "whether the loss is a mean (1) or a sum (0)",
    "retain": "whether it keeps its graph (`retain_graph`)",
    "root": "autograd's sequence number of the node that it began at",
    "rows": "rows of the model's first input",
    "scaled": "whether a gradient scaler has scaled the loss",
    "tokens": "elements that the loss was averaged over",
}
_CLIP: Mapping[NumberName, str] = {
    "empty": "whether it was given no parameter with a gradient",
    "exhausted": "whether it was given an iterator that was used up",
    "fresh": "parameters with a gradient that no step has used",
    "norm": "norm of all gradients before the clip",
    "parameters": "parameters that it was given",
    "scaled": "whether the gradients still carry a scaler's scale",
    "scope": "index of the set of parameters that it was given",
    "spent": "parameters whose gradient a step has used",
}

EVENT_NUMBERS: Mapping[str, Mapping[NumberName, str]] = {
    "backward": {
        **_BACKWARD,
        "added": "parameters whose gradient was added to one that waited for a step",
        "reached": "parameters that got a gradient",
        "stale": "parameters whose gradient was added to one that a step has used",
    },
    "backward-error": {
        **_BACKWARD,
        "freed": "whether the graph had been freed",
        "in_place": "whether a saved tensor had been modified in place",
    },
    "carried": {
        "collected": "whether tensors are collected in a container",
        "repeated": "whether it happens in every step",
        "sum": "whether a sum is carried on",
    },
    "clip-norm": {
        **_CLIP,
        "max_norm": "largest norm allowed",
        "norm_type": "order of the norm, 2 where it is not recorded",
    },
    "clip-value": {
        **_CLIP,
        "clip_value": "largest magnitude of an element allowed",
        "cosine": "cosine between all gradients before and after the clip",
        "norm_after": "norm of all gradients after the clip",
    },
    "epoch": {"batches": "batches of the loader"},
    "grad": {
        "create": "whether it builds a graph of itself (`create_graph`)",
        "inputs": "tensors that gradients were asked for",
    },
    "grad-error": {
        "freed": "whether the graph had been freed",
        "in_place": "whether a saved tensor had been modified in place",
    },
    "mode": {
        "batchnorm": "batch-norm layers in eval mode",
        "dropout": "dropout layers in eval mode",
        "eval": "whether the model is in eval mode",
    },
    "scaler-step": {
        "found_inf": "whether a gradient was not finite",
        "skipped": "whether the step was skipped",
    },
    "scaler-update": {
        "scale_after": "scale after the update",
        "scale_before": "scale before the update",
    },
    "scheduler": {
        "lr_after": "learning rate after the call",
        "lr_before": "learning rate before the call",
    },
    "step": {
        "backwards": "backward passes whose gradients the step uses",
        "clipped": "parameters whose gradient was clipped",
        "fresh": "parameters with a gradient that no step had used",
        "lr": "learning rate of the first group",
        "manual": "whether the script changed the weights itself",
        "none": "parameters without a gradient",
        "nonfinite": "parameters whose gradient is not finite",
        "norm": "norm of all gradients",
        "parameters": "parameters of the optimizer",
        "stale": "parameters whose gradient an earlier step had used",
        "with_gradient": "parameters with a gradient",
        "written": "parameters whose gradient the script itself has written to",
    },
    "unscale": {"scale": "scale that gradients were divided by"},
    "zero": {
        "parameters": "parameters whose gradients were zeroed",
        "set_to_none": "whether gradients were set to None",
        "unspent": "parameters whose gradient no step had used",
    },
}
"""Meaning of each number, by kind of event. A number that was not measured is not recorded."""
