"""Texts to ids and back, with whatever a person calls a tokenizer."""

from __future__ import annotations

from .faults import Unusable

EXPECTED = ("anything with encode(text), a function from a text to ids, a dict or list of the texts of tokens, or a pair (encode, decode)")


class Tokenizing:
    """A person's tokenizer: ids of a text, and the text of each id."""

    def __init__(self, tokenizer):
        self.of_ids, self.vocabulary = tokenizer, None
        self.decoder = None
        if isinstance(tokenizer, (tuple, list)) and len(tokenizer) == 2 and all(map(callable, tokenizer)):
            self.of_ids, self.decoder = tokenizer
        elif isinstance(tokenizer, dict):
            texts = {key: value for key, value in tokenizer.items() if isinstance(key, str)}
            self.vocabulary = texts or {value: key for key, value in tokenizer.items()}
        elif isinstance(tokenizer, (list, tuple)):
            self.vocabulary = {text: token for token, text in enumerate(tokenizer)}
        elif not callable(tokenizer) and not hasattr(tokenizer, "encode") and not hasattr(tokenizer, "EncodeAsIds"):
            raise Unusable(f"the tokenizer is a {type(tokenizer).__name__}, expected {EXPECTED}")
        if self.vocabulary is not None:
            self.texts = {token: text for text, token in self.vocabulary.items()}

    def ids(self, text):
        if self.vocabulary is not None:
            return self._of_vocabulary(text)
        found = self.of_ids
        if hasattr(found, "encode"):
            given = found.encode(text)
        elif hasattr(found, "EncodeAsIds"):
            given = found.EncodeAsIds(text)
        else:
            given = found(text)
        given = getattr(given, "ids", given)  # tokenizers.Encoding
        if hasattr(given, "keys"):
            given = given["input_ids"]
        given = given.tolist() if hasattr(given, "tolist") else list(given)
        given = given[0] if given and isinstance(given[0], list) else given
        if not all(isinstance(token, int) for token in given):
            raise Unusable(f"the tokenizer gave {type(given[0]).__name__} for a text, expected ids")
        return given

    def _of_vocabulary(self, text):
        """Letters where all tokens are letters, words where they are not."""
        unknown = next((self.vocabulary[name] for name in ("<unk>", "[UNK]", "<UNK>", "UNK") if name in self.vocabulary), None)
        of_letters = sum(len(name) == 1 for name in self.vocabulary) > len(self.vocabulary) / 2
        pieces = list(text) if of_letters else text.split()
        ids = [self.vocabulary.get(piece, unknown) for piece in pieces]
        if None in ids:
            raise Unusable(f"{pieces[ids.index(None)]!r} is not in the vocabulary of {len(self.vocabulary)} tokens")
        return ids

    def labels(self, ids):
        """The text of each token."""
        if self.vocabulary is not None:
            return [self.texts.get(token, f"<{token}>") for token in ids]
        if self.decoder is not None:
            return [self._decoded(token) for token in ids]
        from .._capture.axes import _labels

        named = ("convert_ids_to_tokens", "id_to_token", "IdToPiece", "decode")
        if not any(hasattr(self.of_ids, name) for name in named):
            return [str(token) for token in ids]
        return _labels(self.of_ids, ids)

    def _decoded(self, token):
        try:
            return str(self.decoder([token]))
        except Exception:  # a decoder of single ids
            return str(self.decoder(token))

    def about(self):
        if self.vocabulary is not None:
            return f"{len(self.vocabulary)} tokens"
        of = self.of_ids
        return getattr(of, "__name__", None) or type(of).__name__
