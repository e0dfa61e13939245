"""Run the stages of a captured model in two processes, by torch.distributed.pipelining over gloo."""

from __future__ import annotations

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from resnet50 import resnet50
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import framecap
from framecap.graph import split_into_stages
from framecap.graph.passes import estimate_costs

STAGES = 2
MICRO_BATCHES = 4


def model_and_images() -> tuple[nn.Module, torch.Tensor]:
    """The same in each process."""
    torch.manual_seed(0)
    return resnet50(num_classes=10, width=16).eval(), torch.randn(8, 3, 64, 64)


def run_stage(rank: int, port: int, results: mp.SimpleQueue[object]) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=STAGES)
    torch.set_num_threads(1)
    model, images = model_and_images()
    micro_batch = images[: len(images) // MICRO_BATCHES]
    module = framecap.capture(model, micro_batch)
    costs = estimate_costs(module, micro_batch)
    _, stages = split_into_stages(module, STAGES, cost=lambda node: costs.nodes[node].flops)
    stage = PipelineStage(stages[rank].module, rank, STAGES, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, MICRO_BATCHES)
    with torch.no_grad():
        output = schedule.step(images) if rank == 0 else schedule.step()
    if rank == STAGES - 1:
        results.put(output.numpy())
    dist.destroy_process_group()


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results = mp.get_context("spawn").SimpleQueue()
    context = mp.spawn(run_stage, (port, results), nprocs=STAGES, join=False)
    output = torch.from_numpy(results.get())
    while not context.join():
        pass
    model, images = model_and_images()
    torch.set_num_threads(1)
    with torch.no_grad():
        expected = torch.cat([model(part) for part in images.chunk(MICRO_BATCHES)])
    print(f"{STAGES} processes, {MICRO_BATCHES} micro-batches: equal to one process: {torch.equal(output, expected)}")


if __name__ == "__main__":
    main()
