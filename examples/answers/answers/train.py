"""Train the reranker and the writer from fixed seeds: python -m answers.train"""

import json
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from answers.generate import BEGIN, END, PROMPT, SPECIAL, Writer, model_of
from answers.passages import LONGEST, passages, vocabulary
from answers.rerank import Index, Trees
from answers.retrieve import Letters, Words
from answers.workload import Questions, question

WEIGHTS = Path(__file__).parents[1] / "weights"
QUESTIONS = 4000  # to learn from; others judge
JUDGED = 1000
WIDTH, LAYERS, STEPS = 64, 2, 600
BATCH = 64


def train_rerank(path: Path) -> None:
    """Learn which candidate is the passage that the question was made of."""
    rng = np.random.default_rng(7)
    search, index = Letters(), Index()
    search.load("cpu")
    rows, right = [], []
    for _ in range(QUESTIONS):
        number = int(rng.integers(len(passages())))
        found = search.found(question(number, rng))
        rows.append(index.features(found["question"], found["passages"]))
        right += [each == number for each in found["passages"]]
    booster = lightgbm.train(
        {"objective": "binary", "num_leaves": 15, "learning_rate": 0.1, "seed": 7, "verbose": -1,
         "num_threads": 1, "deterministic": True, "force_row_wise": True},
        lightgbm.Dataset(np.concatenate(rows), np.array(right, dtype=float)), 60,
    )  # fmt: skip
    booster.save_model(path)


def train_writer(path: Path) -> None:
    """Learn to repeat: words drawn at random, of random number, and the same again."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(7)
    rng = np.random.default_rng(7)
    model = model_of(WIDTH, LAYERS)
    fitting = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    rates = torch.optim.lr_scheduler.OneCycleLR(fitting, 6e-3, STEPS)
    for step in range(STEPS):
        given, wanted = (torch.from_numpy(each) for each in _lessons(rng))
        loss = model(given, labels=wanted).loss
        fitting.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        fitting.step()
        rates.step()
        if step % 100 == 99:
            print(f"{path.stem} {step + 1}: loss {loss.item():.4f}", flush=True)
    save_file({name: each.contiguous() for name, each in model.state_dict().items()}, path)


def _lessons(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A batch of sequences, and what is to be said in each (-100: nothing)."""
    lengths = rng.integers(1, LONGEST + 1, size=BATCH)
    drawn = rng.integers(SPECIAL, SPECIAL + len(vocabulary()), size=(BATCH, PROMPT))
    said = np.where(np.arange(PROMPT) < lengths[:, None], drawn, END)
    given = np.concatenate([said, np.full((BATCH, 1), BEGIN), said], axis=1)
    wanted = given.copy()
    wanted[:, : PROMPT + 1] = -100
    beyond = np.arange(PROMPT) > lengths[:, None]
    wanted[:, PROMPT + 1 :][beyond] = -100
    return given, wanted


def accuracies() -> dict[str, float]:
    """The accuracy of every variant on questions that were not learned from."""
    operators: dict[str, Any] = {
        "retrieve/words": Words(), "retrieve/letters": Letters(),
        "rerank/trees": Trees(str(WEIGHTS / "rerank.txt")),
        "generate/llama": Writer(str(WEIGHTS / "generate.safetensors"), WIDTH, LAYERS),
    }  # fmt: skip
    found = {}
    for key, operator in operators.items():
        operator.load("cpu")
        task, workload = key.partition("/")[0], Questions()
        count = 200 if task == "generate" else JUDGED
        inputs, truths = workload.task_inputs(task, count, np.random.default_rng(1))
        outputs = operator.predict(inputs)
        scored = [workload.task_score(task, *each) for each in zip(outputs, truths, strict=True)]
        found[key] = round(float(np.mean(scored)), 4)
    return found


def main() -> None:
    """Train everything, and write the accuracies beside the weights."""
    WEIGHTS.mkdir(exist_ok=True)
    train_rerank(WEIGHTS / "rerank.txt")
    train_writer(WEIGHTS / "generate.safetensors")
    (WEIGHTS / "accuracy.json").write_text(json.dumps(accuracies(), indent=2) + "\n")


if __name__ == "__main__":
    main()
