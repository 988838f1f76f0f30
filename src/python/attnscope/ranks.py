"""Several processes that train one model: who writes, and whose heads belong together."""

import sys

import torch


def rank():
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def n_ranks():
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def tensor_parallel_group(model):
    """The group of processes that share the heads of each layer; None where every process has all of them.

    Known from Megatron's own state, and from parameters that are sharded over a mesh dimension called tp, or over the only
    one.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    state = sys.modules.get("megatron.core.parallel_state")
    if state is not None and state.model_parallel_is_initialized():
        group = state.get_tensor_model_parallel_group()
        return group if torch.distributed.get_world_size(group) > 1 else None
    alone = not is_sharded(model)  # FSDP shards parameters in the same way, and its processes have all heads
    for parameter in model.parameters():
        mesh = getattr(parameter, "device_mesh", None)
        names = getattr(mesh, "mesh_dim_names", None) or ()
        for name in names:
            if name in ("tp", "tensor_parallel", "tensor") and mesh.size(names.index(name)) > 1:
                return mesh.get_group(name)
        if mesh is not None and not names and alone and mesh.ndim == 1 and mesh.size() > 1:
            return mesh.get_group()
    return None


def holds_rank_0(group):
    return 0 in torch.distributed.get_process_group_ranks(group)


def gathered(value, group):
    """The values of all processes of a group, in their order."""
    values = [None] * torch.distributed.get_world_size(group)
    with torch.no_grad():
        torch.distributed.all_gather_object(values, value, group=group)
    return values


def is_sharded(model):
    """Whether a forward pass of the model needs the other processes."""
    for module in model.modules():
        if hasattr(module, "_fsdp_wrapped_module") or type(module).__name__.startswith("FSDP"):
            return True
    return False
