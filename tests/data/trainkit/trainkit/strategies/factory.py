"""Chooses the strategy that the command line asks for."""


def get_strategy(args):
    """A strategy for `args.backend`."""
    if args.backend == "fsdp":
        from trainkit.strategies.fsdp import FsdpStrategy

        return FsdpStrategy(
            seed=args.seed,
            max_norm=args.max_norm,
            micro_batch_size=args.micro_batch_size,
            batch_size=args.batch_size,
            args=args,
        )
    from trainkit.strategies.deepspeed import DeepspeedStrategy

    return DeepspeedStrategy(
        seed=args.seed,
        max_norm=args.max_norm,
        micro_batch_size=args.micro_batch_size,
        batch_size=args.batch_size,
        args=args,
    )
