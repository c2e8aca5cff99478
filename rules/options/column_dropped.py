"""A column of the data that the Trainer drops before the collator asks for it.

What it does
    Looks at what a collator (`data_collator=`) of a Trainer of transformers asks each sample for, and reports a key
    that is no parameter of the `forward` of the model, where its class is known and of the project; otherwise of any
    model of the project, nor one that models of transformers have. Silent
    where anything in the project speaks of `remove_unused_columns`, and where a class of the project changes which
    columns the Trainer keeps.

Why is this bad
    By default the Trainer keeps only the columns that `forward` takes: the collator raises KeyError on the first batch,
    or goes on without the weights, the mask or the reward that the column holds.

References
    https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.remove_unused_columns
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import ClassDef
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.trainers import is_trainer, trainers
from validator.flow.values import BOTTOM, NONE_OBJ, Val
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP320", "column-dropped", "warning", stable_since="0.6.0", tokens=("data_collator",), solves=True)

_CHOOSING = ("_set_signature_columns_if_needed", "_remove_unused_columns", "get_train_dataloader")
# Parameters of the `forward` methods of transformers 4 and 5, and the names of labels, which the Trainer keeps.
_KEPT = frozenset({
    "input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds", "past_key_values", "head_mask",
    "labels", "label", "label_ids", "start_positions", "end_positions", "decoder_input_ids", "decoder_attention_mask",
    "pixel_values", "pixel_mask", "pixel_values_videos", "image_grid_thw", "video_grid_thw", "image_sizes", "bbox",
    "input_features", "input_values", "mask_labels", "class_labels", "next_sentence_label", "mc_labels", "mc_token_ids",
    "bool_masked_pos", "global_attention_mask", "special_tokens_mask", "encoder_outputs", "cache_position", "images",
})  # fmt: skip


_LABELS = frozenset({"label", "label_ids", "labels"})  # the Trainer keeps these, whatever the model takes


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    if any(b"remove_unused_columns" in source.data for source in project.files.values()):
        return
    models = queries.flow.models
    for unit in queries.mentioning(*trainers(models, project)):
        for call in queries.calls_in(unit) if not is_aside(unit.path) else ():
            made = call.operand(0).closed.each
            if not made or not all(is_trainer(models, o, _CHOOSING) for o in made):
                continue
            asked = list(_asked(queries, call.passed("data_collator") or BOTTOM))
            columns = {key for key, _ in asked} | _columns(queries, call.passed("train_dataset") or BOTTOM)
            taken = _taken(call.passed("model") or BOTTOM)
            for key, read in asked:
                kept = key in taken if taken else key in _KEPT or _is_taken(project, key, columns)
                if not kept:
                    yield _report(call, key, read)


def _taken(model: Val) -> frozenset[str]:
    """The columns that are kept for the models that may be trained, where these are known and of the project."""
    objs = model.objs - {NONE_OBJ}
    found = [o[1].find("forward") for o in objs if o[0] == "inst"]
    forwards = [method for method in found if isinstance(method, Method)]
    if not forwards or len(forwards) < len(objs):
        return frozenset()
    return _LABELS.union(param.name for method in forwards for param in method.facts.params)


def _columns(queries: Queries, data: Val) -> set[str]:
    """The columns of what classes of the project give as a sample."""
    units = filter(None, (_method(queries, o[1], "__getitem__") for o in data.of("inst")))
    rows = (o for unit in units for o in queries.flow.result(unit).returned.of("dict"))
    return {key for o in rows for key, _ in o[1] if isinstance(key, str)}


def _is_taken(project: Project, key: str, columns: set[str]) -> bool:
    """Whether a model of the project takes a column, of those that may be trained on such data: all but the parts of
    models, which take none of its other columns."""
    forwards = [method for method in project.functions() if method.name == "forward"]
    taken = [{each.name for each in method.facts.params} for method in forwards]
    return any(key in each for each in [each for each in taken if each & (columns - {key})] or taken)


def _asked(queries: Queries, collator: Val) -> Iterator[tuple[str, Place]]:
    """The keys that a collator asks each of its samples for, where a missing one raises."""
    for unit in _run_by(queries, collator):
        position = int(unit.has_receiver)
        for read in queries.values(unit, "item"):
            sample = read.operand(0).root
            if sample.value.op == "next" and _is_over(sample, position):
                yield from ((key, read) for key in _keys(read.operand(1).closed))


def _keys(asked: Val) -> list[str]:
    """The keys that something is asked for, one by one, where these are all written out."""
    known = bool(asked.objs) and all(o[0] == "const" and isinstance(o[2], str) for o in asked.objs)
    return sorted(o[2] for o in asked.objs) if known else []


def _run_by(queries: Queries, collator: Val) -> list[Unit]:
    found = []
    for o in collator.each:
        if o[0] == "unit":
            found.append(o[1])
        elif o[0] == "inst" and (unit := _method(queries, o[1], "__call__")) is not None:
            found.append(unit)
    return found


def _method(queries: Queries, cls: ClassDef, name: str) -> Unit | None:
    method = cls.find(name)
    return queries.flow.unit_of(method) if method is not None else None


def _is_over(element: Place, position: int) -> bool:
    """Whether a value is an element of what a function gets as a parameter."""
    over = element.operand(0).root
    while over.value.op == "iter":
        over = over.operand(0).root
    return over.value.op == "param" and over.value.data[0] == position


def _report(call: Place, key: str, read: Place) -> Finding:
    return RULE.finding(
        read.unit.path,
        read.at,
        f"`{read.text}`{read.where}: no model takes {key!r}, and the Trainer drops such columns before it collates",
        help="pass `remove_unused_columns=False` in the arguments of the Trainer",
        related=[Related(call.unit.path, call.at[0], "the Trainer is made here")],
        context=f"{read.unit.qualname}:{key}",
    )


_TRAIN = """
import torch
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

class Collator:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, features):
        batch = self.tokenizer.pad([{"input_ids": f["input_ids"]} for f in features], return_tensors="pt")
        batch["weight"] = torch.tensor([f["weight"] for f in features]){mark}
        return batch

class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        weight = inputs.pop("weight")
        return (model(**inputs).loss * weight).mean()

def main(data, tokenizer):
    model = AutoModelForSequenceClassification.from_pretrained("bert")
    args = TrainingArguments(output_dir="out"{more})
    Weighted(model=model, args=args, train_dataset=data, data_collator=Collator(tokenizer)).train()
"""

_PICTURES = """
import torch
from torch.utils.data import Dataset
from transformers import LlamaForCausalLM, Trainer

class Encoder(torch.nn.Module):
    def forward(self, picture):
        return picture.flatten(1)

class Captioner(LlamaForCausalLM):
    def forward(self, input_ids=None, labels=None, pictures=None):
        return super().forward(input_ids=input_ids, labels=labels)

class Captions(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, index):
        row = self.rows[index]
        sample = dict(input_ids=row["ids"], labels=row["ids"])
        if row["pixels"] is not None:
            sample["{column}"] = row["pixels"]
        return sample

class Collator:
    def __call__(self, samples):
        ids, labels = tuple([each[key] for each in samples] for key in ("input_ids", "labels"))
        batch = {"input_ids": torch.stack(ids), "labels": torch.stack(labels)}
        if "{column}" in samples[0]:
            batch["pictures"] = torch.stack([each["{column}"] for each in samples]){mark}
        return batch

def data_module(rows):
    return dict(train_dataset=Captions(rows), data_collator=Collator())

def main(rows, args):
    model = Captioner.from_pretrained("llama")
    Trainer(model=model, args=args, **data_module(rows)).train()
"""

_KNOWN = """
import torch
import torch.distributed as dist
from transformers import PreTrainedModel, Trainer

class Actor(PreTrainedModel):
    def forward(self, input_ids{taken}, labels=None):
        return input_ids, labels

def collate(rows):
    ids, pixels, labels = (
        torch.stack([row[key] for row in rows]) for key in ("input_ids", "pixel_values", "labels"){mark}
    )
    return dict(input_ids=ids, pixel_values=pixels, labels=labels, rank=dist.get_rank())

def main(data, path):
    Trainer(model=Actor.from_pretrained(path), train_dataset=data, data_collator=collate).train()
"""

INCORRECT = (
    _TRAIN.replace("{mark}", "  # error: MP320").replace("{more}", ""),
    """
from transformers import Trainer

def collate(samples):
    return {"input_ids": [s["input_ids"] for s in samples], "reward": [s["reward"] for s in samples]}  # error: MP320

def main(model, data, args):
    Trainer(model=model, args=args, train_dataset=data, data_collator=collate).train()
""",
    _PICTURES.replace("{column}", "picture").replace("{mark}", "  # error: MP320"),
    # of the model it is known what it takes
    _KNOWN.format(taken="", mark="  # error: MP320"),
)

CORRECT = (
    _PICTURES.replace("{column}", "pictures").replace("{mark}", ""),
    _TRAIN.replace("{mark}", "").replace("{more}", ", remove_unused_columns=False"),
    """
import torch
from transformers import Trainer

class Net(torch.nn.Module):
    def forward(self, input_ids, reward):
        return {"loss": (input_ids * reward).mean()}

def collate(samples):
    return {"input_ids": [s["input_ids"] for s in samples], "reward": [s["reward"] for s in samples]}

def main(data, args):
    Trainer(model=Net(), args=args, train_dataset=data, data_collator=collate).train()
""",
    _KNOWN.format(taken=", pixel_values=None", mark=""),
)
