//! Answers of engines. Shapes are those of their public documentation and source:
//!
//! - OpenAI's completions and chat completions, which vLLM, SGLang, llama.cpp's server, llama-cpp-python and others answer with: `choices`
//!   with `logprobs` of `tokens`, `token_logprobs`, `top_logprobs`, or of `content`.
//! - vLLM beside them: `prompt_logprobs` and `prompt_token_ids`, `token_ids`; and its `RequestOutput` as JSON.
//! - SGLang's `/generate`: `meta_info` with `input_token_logprobs`, `output_token_logprobs`, and those of the top.
//! - Text Generation Inference: `details` with `prefill` and `tokens`.
//! - llama.cpp's `/completion`: `completion_probabilities`.

use attnscope_compare::logprobs::{ScoredPrompt, ScoredToken};

use super::assembled::{answered, id_in, logprob, of_piece, sorted};
use super::tree::Tree;

/// Prompts of an answer, with what gave it; `None` if it is none.
pub(super) fn answer(tree: &Tree, name: &str) -> Option<(&'static str, Vec<ScoredPrompt>)> {
    if let Some(choices) = tree.get("choices").and_then(Tree::list) {
        let n = choices.len();
        let named = |idx: usize| {
            if n == 1 {
                name.to_owned()
            } else {
                format!("{name}.{idx}")
            }
        };
        // What is counted is of all choices together.
        let n_prompt = count(tree.get("usage"), "prompt_tokens").filter(|_| n == 1);
        let choices = choices.iter().enumerate();
        let found =
            choices.map(|(idx, choice)| answered(named(idx), of_choice(tree, choice), n_prompt));
        return Some(("an OpenAI-compatible answer", found.collect()));
    }
    if let (Some(outputs), true) = (
        tree.get("outputs").and_then(Tree::list),
        tree.get("prompt_token_ids").is_some() || tree.get("prompt_logprobs").is_some(),
    ) {
        let before = of_prompt(tree, tree);
        let n = outputs.len();
        let found = outputs.iter().enumerate().map(|(idx, output)| {
            let mut tokens = before.clone();
            tokens.extend(of_ids_and_maps(
                output.get("token_ids"),
                output.get("logprobs"),
            ));
            let name = if n == 1 {
                name.to_owned()
            } else {
                format!("{name}.{idx}")
            };
            answered(name, tokens, None)
        });
        return Some(("vLLM's RequestOutput", found.collect()));
    }
    if let Some(meta) = tree.get("meta_info") {
        meta.any(&["input_token_logprobs", "output_token_logprobs"])?;
        let of = |part: &str| {
            let own = meta
                .get(&format!("{part}_token_logprobs"))
                .and_then(Tree::list)
                .unwrap_or_default();
            let top = meta
                .get(&format!("{part}_top_logprobs"))
                .and_then(Tree::list)
                .unwrap_or_default();
            own.iter()
                .enumerate()
                .map(|(idx, own)| of_triple(own, top.get(idx)))
                .collect::<Vec<_>>()
        };
        let mut tokens = of("input");
        tokens.extend(of("output"));
        let n_prompt = count(Some(meta), "prompt_tokens");
        let found = answered(name.to_owned(), tokens, n_prompt);
        return Some(("SGLang's answer", vec![found]));
    }
    if let Some(details) = tree.get("details") {
        let of = |part: &str| details.get(part).and_then(Tree::list).unwrap_or_default();
        let tokens = of("prefill").iter().chain(of("tokens")).map(of_object);
        let found = answered(name.to_owned(), tokens.collect(), None);
        return Some(("Text Generation Inference's answer", vec![found]));
    }
    if let Some(list) = tree.get("completion_probabilities").and_then(Tree::list) {
        let n_prompt = count(Some(tree), "tokens_evaluated");
        let found = answered(
            name.to_owned(),
            list.iter().map(of_object).collect(),
            n_prompt,
        );
        return Some(("llama.cpp's answer", vec![found]));
    }
    None
}

/// A number of tokens that an answer tells.
fn count(tree: Option<&Tree>, key: &str) -> Option<usize> {
    let value = tree?.get(key)?.number()?;
    (value >= 0.0).then_some(value as usize)
}

/// The tokens of one choice: the prompt, if the answer has it, then what was written.
fn of_choice(answer: &Tree, choice: &Tree) -> Vec<ScoredToken> {
    let mut tokens = of_prompt(answer, choice);
    let Some(logprobs) = choice.get("logprobs") else {
        return tokens;
    };
    let mut written: Vec<ScoredToken> = match logprobs.get("content").and_then(Tree::list) {
        Some(content) => content.iter().map(of_object).collect(),
        None => {
            let list = |key: &str| logprobs.get(key).and_then(Tree::list).unwrap_or_default();
            let (own, tops) = (list("token_logprobs"), list("top_logprobs"));
            let token = |(idx, piece): (usize, &Tree)| ScoredToken {
                logprob: own.get(idx).and_then(logprob),
                top: sorted(tops.get(idx).map(by_piece).unwrap_or_default()),
                ..of_piece(piece.text().unwrap_or_default())
            };
            list("tokens").iter().enumerate().map(token).collect()
        }
    };
    let ids = choice
        .any(&["token_ids", "output_token_ids"])
        .and_then(|(_, ids)| ids.list());
    for (token, id) in written.iter_mut().zip(ids.unwrap_or_default()) {
        token.id = token.id.or(id.id());
    }
    // An echo has the prompt among what was written: its first token has no value.
    let n = tokens.len();
    let is_echo =
        n > 0 && written.len() >= n && written.first().is_some_and(|first| first.logprob.is_none());
    if is_echo {
        for (own, known) in written.iter_mut().zip(&tokens) {
            own.id = own.id.or(known.id);
            own.logprob = own.logprob.or(known.logprob);
        }
        tokens.clear();
    }
    tokens.extend(written);
    tokens
}

/// The tokens of the prompt in vLLM's answers.
fn of_prompt(answer: &Tree, choice: &Tree) -> Vec<ScoredToken> {
    let either = |key: &str| choice.get(key).or_else(|| answer.get(key));
    of_ids_and_maps(either("prompt_token_ids"), either("prompt_logprobs"))
}

/// Tokens from ids, and for each a map from ids to what is said of them.
fn of_ids_and_maps(ids: Option<&Tree>, maps: Option<&Tree>) -> Vec<ScoredToken> {
    let ids = ids.and_then(Tree::list).unwrap_or_default();
    let maps = maps.and_then(Tree::list).unwrap_or_default();
    let token = |idx: usize| {
        let map = maps.get(idx).and_then(Tree::object).unwrap_or_default();
        let all: Vec<(u32, f64, &Tree)> = map
            .iter()
            .filter_map(|(id, said)| {
                Some((
                    id.parse().ok()?,
                    logprob(said.get("logprob").unwrap_or(said))?,
                    said,
                ))
            })
            .collect();
        let id = ids.get(idx).and_then(Tree::id);
        // The token itself stands first; the likeliest ones follow.
        let own = match id {
            Some(id) => all.iter().find(|(other, ..)| *other == id),
            None => all.first(),
        };
        let piece = own
            .and_then(|(.., said)| said.get("decoded_token"))
            .and_then(Tree::text);
        ScoredToken {
            id: id.or(own.map(|(id, ..)| *id)),
            piece: piece.map(str::to_owned),
            logprob: own.map(|(_, logprob, _)| *logprob),
            top: sorted(all.iter().map(|(id, logprob, _)| (*id, *logprob)).collect()),
            is_special: false,
        }
    };
    (0..ids.len().max(maps.len())).map(token).collect()
}

/// A map from tokens as text to log-probabilities; those that are ids count.
fn by_piece(map: &Tree) -> Vec<(u32, f64)> {
    let entries = map.object().unwrap_or_default().iter();
    entries
        .filter_map(|(piece, value)| Some((id_in(piece)?, logprob(value)?)))
        .collect()
}

/// A token as an object: `token` or `text`, `id`, `logprob`, `top_logprobs`.
fn of_object(token: &Tree) -> ScoredToken {
    let piece = token
        .any(&["token", "text", "content"])
        .and_then(|(_, piece)| piece.text());
    let top = token
        .any(&["top_logprobs", "top_tokens", "probs"])
        .and_then(|(_, top)| top.list());
    let top = top.unwrap_or_default().iter().filter_map(|one| {
        let piece = one
            .any(&["token", "text"])
            .and_then(|(_, piece)| piece.text());
        let id = one.any(&["id", "token_id"]).and_then(|(_, id)| id.id());
        Some((id.or(piece.and_then(id_in))?, logprob(one.get("logprob")?)?))
    });
    let id = token.any(&["id", "token_id"]).and_then(|(_, id)| id.id());
    ScoredToken {
        id: id.or(piece.and_then(id_in)),
        piece: piece.map(str::to_owned),
        logprob: token.get("logprob").and_then(logprob),
        top: sorted(top.collect()),
        is_special: false,
    }
}

/// A token as [ln p, id, text or null], with a list of the likeliest in the same form.
fn of_triple(own: &Tree, top: Option<&Tree>) -> ScoredToken {
    let parts = |triple: &Tree| -> (Option<f64>, Option<u32>, Option<String>) {
        let list = triple.list().unwrap_or_default();
        (
            list.first().and_then(logprob),
            list.get(1).and_then(Tree::id),
            list.get(2).and_then(Tree::text).map(str::to_owned),
        )
    };
    let (logprob, id, piece) = parts(own);
    let top = top.and_then(Tree::list).unwrap_or_default().iter();
    let top = top.filter_map(|one| {
        let (logprob, id, _) = parts(one);
        Some((id?, logprob?))
    });
    ScoredToken {
        id,
        piece,
        logprob,
        top: sorted(top.collect()),
        is_special: false,
    }
}
