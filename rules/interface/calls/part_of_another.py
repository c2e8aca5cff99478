"""A part of one object that is passed by a name which is for the part of another one.

What it does
    Takes calls that pass parts of two objects by keywords (`img_ids=inputs_img["ids"]`, `text_ids=inputs_text.ids`),
    where the names of the two objects differ in one word, and the keywords go by these words. Reports the one keyword
    that has the word of one object and is given a part of the other, where two other pairs of keywords take the same
    parts of each object. Silent in tests, and where more than one keyword is crossed so, or the two objects share less:
    training and validation may go by one number of workers.

Why is this bad
    The parts are of one kind and of one shape mostly: nothing fails, and a branch of the model computes with the
    positions, the masks or the lengths of another one.

References
    https://docs.python.org/3/reference/expressions.html#calls
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from validator.definitions import Method
from validator.facts.model import Argument, Call
from validator.finding import Finding
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP166", "part-of-another", "warning", stable_since="1.1")

_PAIRS = 2  # of keywords that take the same of two objects
_ITEM = "[]"  # at the end of a path: an item of what stands before it


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if not is_test(function.path):
            for call in function.facts.calls:
                yield from _checked(function, call)


def _checked(function: Method, call: Call) -> Iterator[Finding]:
    rows = [(each, owner) for each in call.args if each.keyword and (owner := _owner(each))]
    for one, other in itertools.permutations(dict.fromkeys(owner for _, owner in rows), 2):
        mine, theirs = _words(one) - _words(other), _words(other) - _words(one)
        if len(mine) != 1 or len(theirs) != 1:
            continue
        of_mine = [owner for each, owner in rows if _is_for(each, mine, theirs)]
        of_theirs = [(each, owner) for each, owner in rows if _is_for(each, theirs, mine)]
        crossed = [each for each, owner in of_theirs if owner != other]
        right = set(of_mine) == {one} and any(owner == other for _, owner in of_theirs)
        pairs = _parts(rows, one, mine) & _parts(rows, other, theirs)
        if right and len(crossed) == 1 and (crossed[0], one) in of_theirs and len(pairs) >= _PAIRS:
            yield _report(function, call, crossed[0], one, other)


def _parts(rows: list[tuple[Argument, str]], owner: str, words: frozenset[str]) -> set[frozenset[str]]:
    """By what is left of their names the keywords with some words that take a part of an object."""
    named = (_words(each.keyword or "") for each, held in rows if held == owner)
    return {each - words for each in named if words <= each}


def _is_for(argument: Argument, words: frozenset[str], others: frozenset[str]) -> bool:
    named = _words(argument.keyword or "")
    return words <= named and not others & named


def _owner(argument: Argument) -> str:
    """The variable, or attribute, of which an argument is an item or an attribute; empty for other expressions."""
    if argument.kind != "path":
        return ""
    head = argument.value.removesuffix(_ITEM) if argument.value.endswith(_ITEM) else argument.value.rpartition(".")[0]
    last = head.rpartition(".")[2]
    return last if last.isidentifier() else ""


def _words(name: str) -> frozenset[str]:
    return frozenset(word for word in name.lower().split("_") if word)


def _report(function: Method, call: Call, argument: Argument, one: str, other: str) -> Finding:
    return RULE.finding(
        function.path,
        argument.at,
        f"`{function.qualname}` passes a part of `{one}` as `{argument.keyword}` of `{call.method}`, whose other"
        f" arguments of that kind are parts of `{other}`",
        help=f"pass the part of `{other}`",
        context=f"{function.qualname}:{call.method}:{argument.keyword}",
    )


_BRANCHES = """def generate(model, base, cfg_text, cfg_img):
    return model.run(
        position_ids=base["position_ids"],
        cfg_text_position_ids=cfg_text["position_ids"],
        cfg_text_lengths=cfg_text["lengths"],
        cfg_text_indexes=cfg_text["indexes"],
        cfg_img_position_ids={owner}["position_ids"],{mark}
        cfg_img_lengths=cfg_img["lengths"],
        cfg_img_indexes=cfg_img["indexes"],
    )
"""

INCORRECT = (
    _BRANCHES.format(owner="cfg_text", mark="  # error: MP166"),
    """class Trainer:
    def step(self, model):
        return model.loss(
            actor_lr=self.actor_args.lr,
            actor_clip=self.critic_args.clip,  # error: MP166
            critic_lr=self.critic_args.lr,
            critic_clip=self.critic_args.clip,
            actor_steps=self.actor_args.steps,
            critic_steps=self.critic_args.steps,
        )
""",
)

CORRECT = (
    _BRANCHES.format(owner="cfg_img", mark=""),
    # training and validation share the workers
    """def loaders(make, train_cfg, val_cfg):
    return make(
        train_batch=train_cfg.batch,
        train_workers=train_cfg.workers,
        val_batch=val_cfg.batch,
        val_workers=train_cfg.workers,
    )
""",
    # of one object alone; the names say nothing of the two; all are crossed
    """def generate(model, cfg_text, cfg_img, old_batch, new_batch):
    model.run(cfg_img_ids=cfg_text["ids"], cfg_img_lengths=cfg_text["lengths"], cfg_text_ids=cfg_text["ids"])
    model.step(ids=old_batch.ids, mask=new_batch.mask, lengths=old_batch.lengths)
    return model.turn(old_ids=new_batch.ids, old_mask=new_batch.mask, new_ids=old_batch.ids, new_mask=old_batch.mask)
""",
)
