"""A command line sets a key that the program's configuration does not have.

What it does
    Composes the configuration of a program started by Hydra (`@hydra.main`) from its YAML files, or of one that reads
    a YAML file itself and lays words over it strictly (`OmegaConf.set_struct`, as NeMo RL does), and reports each
    `key=value` whose key is not in it, with the nearest one that is. Silent where a part of the configuration cannot
    be found, below empty and computed values, and about keys that are added (`+key=`) or removed (`~key`).

Why is this bad
    Hydra ends the program: "Key … is not in struct".

References
    https://hydra.cc/docs/advanced/override_grammar/basic/
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.launch import _programs
from validator.analysis.commands.launch import Launches
from validator.analysis.recipes.composed import Composition, Compositions, Node, Override
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP707", "override-of-no-key", "error", stable_since="0.1.0", languages=("shell",))


def check_project(project: Project) -> Iterator[Finding]:
    compositions = project.analysis(Compositions)
    for launch in project.analysis(Launches).all if compositions.files else ():
        composition = compositions.of(launch)
        for override in composition.overrides if composition is not None else ():
            if not override.sign and composition is not None and (found := _lacks(override, composition)):
                yield _report(override, composition, *found)


def _lacks(override: Override, composition: Composition) -> tuple[Node, str] | None:
    """The node that lacks the next link of the key, and that link."""
    links = override.key.split(".")
    if override.key in composition.groups or links[0] == "hydra":
        return None
    added = {o.key for o in composition.overrides if o.sign.startswith("+")}
    if any(override.key == key or override.key.startswith(f"{key}.") for key in added):
        return None
    node = composition.root
    for link in links:
        if node.open or not node.children:
            return None
        if link not in node.children:
            return node, link
        node = node.children[link]
    return None


def _report(override: Override, composition: Composition, node: Node, link: str) -> Finding:
    word = override.word
    place = word.place
    above = override.key.split(".")[: override.key.split(".").index(link)]
    near = nearest(link, list(node.children), 0.7)
    where = f"`{'.'.join(above)}` of `{composition.name}`" if above else f"`{composition.name}`"
    return RULE.finding(
        place.path,
        (place.line, place.column, place.line, max(word.end, place.column + 1)),
        f"`{override.key}` is no key of the configuration: {where} has no `{link}`",
        help=f"drop it, set a key that exists{near}, or add it with `+{override.key}=`",
        related=[Related(node.path, node.at[0], f"{where} is here")] if node.path else [],
        context=f"{composition.name}:{override.key}",
    )


_TRAINER = """# file: demo/__init__.py
# file: demo/main.py
import hydra


@hydra.main(config_path="config", config_name="trainer", version_base=None)
def main(config):
    print(config.actor.fsdp_config.param_offload)


if __name__ == "__main__":
    main()
# file: demo/config/trainer.yaml
defaults:
  - actor@actor: dp_actor
  - optional extra: ${oc.env:EXTRA,nothing}
  - _self_
trainer:
  nnodes: 1
  logger: [console]
  kwargs: {}
# file: demo/config/actor/dp_actor.yaml
defaults:
  - ../engine@fsdp_config: fsdp
  - actor
  - _self_
strategy: fsdp
# file: demo/config/actor/actor.yaml
ppo_mini_batch_size: 256
clip_ratio: 0.2
# file: demo/config/engine/fsdp.yaml
param_offload: false
optimizer_offload: false
"""

INCORRECT = (
    _TRAINER
    + """# file: run.sh
set -x
python3 -m demo.main \\
    actor.ppo_mini_batch_size=256 \\
    actor.fsdp_config.param_offload=False \\
    actor.fsdp_config.grad_offload=False \\  # error: MP707
    actor.cliprange=0.2 \\  # error: MP707
    trainer.n_nodes=2 $@  # error: MP707
""",
    _programs.READER
    + """# file: run.sh
HERE=$(dirname "$0")
uv run coverage run -a $HERE/examples/train.py policy.train_batches=16 cluster.gpus_per_node=4  # error: MP707
uv run examples/train.py --config examples/configs/large.yaml policy.megatron.cp=2 $@  # error: MP707
""",
)

CORRECT = (
    _TRAINER
    + """# file: run.sh
MINI=${MINI:-256}
python3 -m demo.main \\
    actor.ppo_mini_batch_size=$MINI \\
    +actor.fsdp_config.grad_offload=False \\
    actor.fsdp_config.grad_offload=True \\
    ++trainer.tags=x ~trainer.logger \\
    trainer.kwargs.any=1 \\
    extra.thing=3 hydra.run.dir=. \\
    actor=dp_actor $@
python3 -m demo.main --config-name=other nothing.known=1
python3 -m demo.other nothing.known=1
""",
    _TRAINER
    + """# file: examples/config/longer.yaml
hydra:
  searchpath:
    - file://demo/config
defaults:
  - trainer
  - _self_
data:
  path: x
# file: run.sh
ROOT=$(pwd)
python3 -m demo.main --config-path="$ROOT/examples/config" --config-name='longer' data.path=y trainer.nnodes=2
""",
    _programs.READER
    + """# file: run.sh
HERE=$(dirname "$0")
uv run $HERE/examples/train.py policy.train_batch=16 ++cluster.num_nodes=4 +policy.megatron.tp=2
uv run examples/train.py --config examples/configs/large.yaml policy.megatron.tp=2 $@
uv run examples/train.py --config $CHOSEN policy.anything=2
""",
)
