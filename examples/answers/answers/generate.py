"""Generate: words one after another, by a small language model (transformers' Llama)."""

from pathlib import Path
from typing import Any, ClassVar

from answers.passages import LONGEST, vocabulary

END, BEGIN, UNKNOWN = 0, 1, 2
SPECIAL = 3
PROMPT = LONGEST + 1  # words of a passage, filled up with END


class Writer:
    """Repeats the passage that it is given, up to its end, word by word.

    ``width`` and ``layers`` are those of the model in ``weights``. It knows the words of the
    passages only, and has learned nothing but to repeat; see README.md.
    """

    libraries: ClassVar = ("torch", "transformers", "safetensors.torch")

    def __init__(self, weights: str, width: int, layers: int) -> None:
        self._file, self._width, self._layers = Path(weights), width, layers

    def load(self, device: str) -> None:
        """Build the model with its weights."""
        from safetensors.torch import load_file

        self._model = model_of(self._width, self._layers).to(device).eval()
        self._model.load_state_dict(load_file(self._file, device=device))
        self._numbers = numbers()

    def predict(self, batch: list[str]) -> list[str]:
        """One text for each passage. Items differ in length, so each is written by itself."""
        return [self.written(text) for text in batch]

    def written(self, text: str) -> str:
        """The model's words for a passage."""
        import torch

        said: list[int] = []
        given = torch.tensor([prompt(text, self._numbers)], device=self._model.device)
        kept: Any = None
        with torch.inference_mode():
            while len(said) <= LONGEST:
                made = self._model(given, past_key_values=kept, use_cache=True)
                word = int(made.logits[0, -1].argmax())
                if word == END:
                    break
                said.append(word)
                kept = made.past_key_values
                given = torch.tensor([[word]], device=self._model.device)
        names = vocabulary()
        return " ".join(names[n - SPECIAL] if n >= SPECIAL else "?" for n in said)


def model_of(width: int, layers: int) -> Any:
    """The untrained model, on one thread."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=SPECIAL + len(vocabulary()), hidden_size=width, intermediate_size=2 * width,
        num_hidden_layers=layers, num_attention_heads=2, num_key_value_heads=2,
        max_position_embeddings=2 * PROMPT + 2, pad_token_id=END, bos_token_id=BEGIN,
        eos_token_id=END, tie_word_embeddings=False,
    ))  # fmt: skip


def numbers() -> dict[str, int]:
    """The model's number of each word."""
    return {word: SPECIAL + at for at, word in enumerate(vocabulary())}


def prompt(text: str, known: dict[str, int]) -> list[int]:
    """The passage's words, ``PROMPT`` in all, then the word that begins an answer."""
    said = [known.get(word, UNKNOWN) for word in text.split()[:LONGEST]]
    return [*said, *[END] * (PROMPT - len(said)), BEGIN]
