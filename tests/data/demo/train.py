import argparse

import torch
from model import build_model
from strategies import get_strategy


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=["deepspeed", "fsdp2"], default="deepspeed")
    parser.add_argument("--ds_config", default="ds_config.json")
    parser.add_argument("--ring_size", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=1e-5)
    parser.add_argument("--warmup_steps", type=int, default=100)
    parser.add_argument("--ckpt_path", default="ckpt")
    parser.add_argument("--resume", metavar="TAG")
    return parser.parse_args()


def main():
    args = parse()
    strategy = get_strategy(args)
    strategy.setup_distributed()
    model, batches = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    model, optimizer = strategy.prepare(model, optimizer)
    if args.resume:
        strategy.load_ckpt(model, args.ckpt_path, tag=args.resume, load_optimizer_states=True)
    for step, batch in enumerate(batches):
        loss = model(**batch).loss
        strategy.backward(loss, model, optimizer, name="actor")
        strategy.optimizer_step(optimizer, model, scheduler, name="actor")
        worst = strategy.all_reduce(loss.detach(), op="max")
        if strategy.is_rank_0():
            print(step, worst.item(), args.learning_rat)
        if step % 100 == 0:
            strategy.save_ckpt(model, args.ckpt_path, tag=f"step{step}", client_state={"step": step})


if __name__ == "__main__":
    main()
