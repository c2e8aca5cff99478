import sys, torch
from tests.bench.pool import run_group
def job(overlap):
    import torch
    torch._inductor.config.compile_threads = 1
    from bench.configuration import parse
    from tests.bench.jobs import start, micro_batches
    from bench.inputs.synthetic import synthetic_batches
    from bench.losses import sft
    from bench.measure.training import train_step, no_phase
    c = parse({"backend":"fsdp2","model":"llama-tiny","num_gpus":2,"tp":2,"sequence_parallel":True,"tp_plan":"optimized","compile":"blocks","device":"cpu","dtype":"fp32","micro_batch_size":2,"train_batch_size":2,"async_tp":overlap,"reshard_after_forward":False})
    strategy, actor, optimizer, _ = start(c)
    out=[]
    stream = synthetic_batches(vocabulary=1024, rows=2, seq_len=48, seed=3)
    for i in range(4):
        b=next(stream)
        out.append(float(train_step(strategy, actor, optimizer, None, micro_batches(strategy,[b],2), sft, phase=no_phase, backward=True).loss))
    return out
if __name__=="__main__":
    print(run_group(2, job, sys.argv[1]=="1", timeout=400))
