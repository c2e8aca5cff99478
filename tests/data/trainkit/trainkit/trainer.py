"""A trainer of an actor and a critic that knows no backend."""

from trainkit.options import arguments
from trainkit.strategies import get_strategy


class Trainer:
    """Trains two models with one strategy."""

    def __init__(self, strategy, args, actor, critic):
        self.strategy = strategy
        self.args = args
        self.models = {"actor": actor, "critic": critic}
        self.optimizers = {}
        self.schedulers = {}

    def setup(self, schedule):
        for name, model in self.models.items():
            optimizer = self.strategy.create_optimizer(model, lr=self.args.lr, weight_decay=0.1)
            prepared, optimizer, scheduler = self.strategy.prepare(model, optimizer, schedule(optimizer))
            self.models[name] = prepared
            self.optimizers[name] = optimizer
            self.schedulers[name] = scheduler

    def fit(self, dataset):
        loader = self.strategy.setup_dataloader(dataset, self.args.micro_batch_size)
        for epoch in range(self.args.epochs):
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                status = self.step(batch)
                self.strategy.log("step", status)
        self.save("final")

    def step(self, batch):
        actor_loss = self.models["actor"](batch).mean()
        self.update("actor", actor_loss)
        critic_loss = self.models["critic"](batch).mean()
        self.strategy.backward(critic_loss, self.models["critic"], self.optimizers["critic"], name="critic")
        self.strategy.optimizer_step(
            self.optimizers["critic"], self.models["critic"], self.schedulers["critic"], name="critic"
        )
        return self.report(actor_loss.detach(), critic_loss.detach())

    def update(self, name, loss):
        self.strategy.backward(loss, self.models["actor"], self.optimizers["actor"], name="actor")
        self.strategy.optimizer_step(
            self.optimizers["actor"], self.models["actor"], self.schedulers["actor"], name="actor"
        )
        self.strategy.log("updated", name)

    def report(self, actor_loss, critic_loss):
        return {
            "actor": self.strategy.all_reduce(actor_loss),
            "longest": self.strategy.all_reduce(critic_loss, op="max"),
            "grad_norm": self.strategy.get_grad_norm(self.models["actor"]),
            "ring": self.strategy.is_ring,
            "lead": self.strategy.is_rank_0(),
        }

    def save(self, tag):
        for name, model in self.models.items():
            folder = f"{self.args.output}/{name}"
            self.strategy.save_ckpt(model, self.optimizers[name], self.schedulers[name], folder, tag, {"tag": tag})
            self.strategy.save_model(model, folder, max_shard_size="5GB")

    def resume(self):
        for name, model in self.models.items():
            folder = f"{self.args.output}/{name}"
            path, state = self.strategy.load_ckpt(model, self.optimizers[name], self.schedulers[name], folder)
            self.strategy.log("resumed", path, state["tag"])


def train(models, dataset, schedule):
    """Train an (actor, critic) pair on a dataset."""
    args = arguments()
    strategy = get_strategy(args)
    strategy.setup_distributed()
    trainer = Trainer(strategy, args, *models)
    trainer.setup(schedule)
    if args.resume:
        trainer.resume()
    trainer.fit(dataset)
