//! Records of ids and log-probabilities under many names: rows of trainers and rollouts, one object or one row of a table each; and rows that
//! hold one token each.

use attnscope_compare::logprobs::{ScoredPrompt, ScoredToken};

use super::assembled::{forget_first, logprob, of_lists, prompt, sorted};
use super::tree::Tree;

/// All ids of a text.
const IDS: &[&str] = &["ids", "token_ids", "input_ids", "sequences", "tokens"];
/// Those of its beginning, and of what was written behind it.
const PROMPT_IDS: &[&str] = &[
    "prompt_ids",
    "prompt_token_ids",
    "prompts",
    "prompt_tokens",
    "query_ids",
    "queries",
];
const RESPONSE_IDS: &[&str] = &[
    "completion_ids",
    "response_ids",
    "responses",
    "output_ids",
    "output_token_ids",
    "completion_token_ids",
    "response_token_ids",
    "response_tokens",
];
/// Log-probabilities; a record may have several of them, of which one has to be named.
pub(super) const LOGPROBS: &[&str] = &[
    "logprobs",
    "log_probs",
    "token_logprobs",
    "logps",
    "per_token_logps",
    "rollout_log_probs",
    "rollout_logprobs",
    "sampling_per_token_logps",
    "sampling_logprobs",
    "old_log_probs",
    "old_per_token_logps",
    "old_logprobs",
    "action_log_probs",
    "generation_logprobs",
    "prev_logprobs",
    "ref_log_probs",
    "ref_log_prob",
    "ref_per_token_logps",
    "reference_policy_logprobs",
];
const WHOLE_MASK: &[&str] = &["attention_mask"];
const RESPONSE_MASK: &[&str] = &[
    "response_mask",
    "completion_mask",
    "action_mask",
    "loss_mask",
];
const NAMES: &[&str] = &[
    "prompt",
    "name",
    "id",
    "prompt_id",
    "request_id",
    "uid",
    "sample",
    "index",
];

/// Names of a row that holds one token.
const TOKEN_IDS: &[&str] = &["id", "token_id", "token"];
const TOKEN_LOGPROBS: &[&str] = &["logprob", "log_prob", "lp"];
const POSITIONS: &[&str] = &["position", "pos", "index", "token_idx"];
const PROMPTS: &[&str] = &["prompt", "prompt_id", "request_id", "sample", "sequence"];

/// Keys of an object that hold log-probabilities of many tokens.
pub(super) fn columns<'a>(tree: &'a Tree, chosen: Option<&'a str>) -> Vec<&'a str> {
    let is_list = |key: &&str| tree.get(key).is_some_and(|value| value.list().is_some());
    match chosen {
        Some(chosen) => Some(chosen).into_iter().filter(is_list).collect(),
        None => LOGPROBS.iter().copied().filter(is_list).collect(),
    }
}

/// Whether an object is a row of one token.
pub(super) fn is_token(tree: &Tree) -> bool {
    let has_value = |keys: &[&str]| {
        let object = tree.object().unwrap_or_default();
        keys.iter()
            .any(|key| object.iter().any(|(name, _)| name == key))
    };
    has_value(TOKEN_LOGPROBS)
        && has_value(POSITIONS)
        && has_value(TOKEN_IDS)
        && tree
            .get("logprob")
            .is_none_or(|value| value.list().is_none())
}

/// Prompts of a record; `None` if it has no log-probabilities.
///
/// # Errors
/// What is wrong with it, where it is one.
pub(super) fn record(
    tree: &Tree,
    name: &str,
    chosen: Option<&str>,
) -> Result<Option<Vec<ScoredPrompt>>, String> {
    let found = columns(tree, chosen);
    let (column, values) = match found.as_slice() {
        [] => return Ok(None),
        [one] => (*one, tree.get(one).unwrap_or(&Tree::Null)),
        several => {
            return Err(format!(
                "expected one column of log-probabilities, found {}: choose one with FILE#NAME",
                several.join(", ")
            ));
        }
    };
    let is_batch = values.is_batch();
    let list = |keys: &[&'static str]| {
        tree.any(keys)
            .map(|(_, value)| value)
            .filter(|value| value.is_numbers() || value.is_batch())
    };
    let parts = (list(IDS), list(PROMPT_IDS), list(RESPONSE_IDS));
    let n = if is_batch {
        values.list().map_or(0, <[Tree]>::len)
    } else {
        1
    };
    let mut prompts = Vec::new();
    for idx in 0..n {
        let nth = |value: Option<&'_ Tree>| -> Option<Vec<Tree>> {
            let value = value?;
            if is_batch && value.is_batch() {
                return value.list()?.get(idx)?.list().map(<[Tree]>::to_vec);
            }
            value.list().map(<[Tree]>::to_vec)
        };
        let values = nth(Some(values)).unwrap_or_default();
        let values: Vec<Option<f64>> = values.iter().map(logprob).collect();
        let ids = (nth(parts.0), nth(parts.1), nth(parts.2));
        let masks = (nth(list(WHOLE_MASK)), nth(list(RESPONSE_MASK)));
        let own = tree.any(NAMES).filter(|_| !is_batch);
        let own = own.and_then(|(_, name)| {
            name.text()
                .filter(|text| text.len() <= 64)
                .map(str::to_owned)
                .or(name.id().map(|id| id.to_string()))
        });
        let name = own.unwrap_or_else(|| {
            if n == 1 {
                name.to_owned()
            } else {
                format!("{name}.{idx}")
            }
        });
        let tokens =
            tokens(ids, masks, values).map_err(|problem| format!("{column}: {problem}"))?;
        prompts.push(prompt(name, tokens));
    }
    Ok(Some(prompts))
}

type Lists = Option<Vec<Tree>>;

/// The tokens of one text from its parts.
fn tokens(
    (whole, before, behind): (Lists, Lists, Lists),
    (mask, response_mask): (Lists, Lists),
    values: Vec<Option<f64>>,
) -> Result<Vec<ScoredToken>, String> {
    let as_ids = |list: Vec<Tree>| -> Result<Vec<u32>, String> {
        let id = |value: &Tree| {
            value
                .id()
                .ok_or_else(|| format!("expected token ids, found {value:?}"))
        };
        list.iter().map(id).collect()
    };
    let is_one = |mask: &[Tree], idx: usize| {
        mask.get(idx)
            .and_then(Tree::number)
            .is_none_or(|value| value != 0.0)
    };
    // With its parts, the values are of what was written; without, of the whole.
    if let (Some(before), Some(behind)) = (before, behind) {
        let (before, behind) = (as_ids(before)?, as_ids(behind)?);
        let n_prompt = before.len();
        // A mask of the whole covers both parts, padded on the left and on the right.
        let whole = mask.filter(|mask| mask.len() == n_prompt + behind.len());
        let covers = |idx: usize| whole.as_ref().is_none_or(|mask| is_one(mask, idx));
        let before: Vec<u32> = before
            .iter()
            .enumerate()
            .filter(|(idx, _)| covers(*idx))
            .map(|(_, id)| *id)
            .collect();
        if values.len() > behind.len() && values.len() + 1 >= n_prompt + behind.len() {
            let all: Vec<u32> = before.iter().chain(&behind).copied().collect();
            return of_lists(&all, &values);
        }
        let n_values = values.len();
        if n_values > behind.len() {
            return Err(format!(
                "expected as many values as tokens of the response, found {n_values} for {}",
                behind.len()
            ));
        }
        let own = response_mask.filter(|mask| mask.len() == behind.len());
        let kept = (0..behind.len()).filter(|idx| covers(n_prompt + idx));
        // What a tool wrote inside a response is no action: it stays as context, without a value.
        let acted = |idx: usize| own.as_ref().is_none_or(|mask| is_one(mask, idx));
        let last = (0..behind.len())
            .rev()
            .find(|idx| acted(*idx))
            .map_or(0, |idx| idx + 1);
        let kept: Vec<usize> = kept.filter(|idx| own.is_none() || *idx < last).collect();
        let mut tokens: Vec<ScoredToken> = before
            .into_iter()
            .map(|id| ScoredToken {
                id: Some(id),
                ..ScoredToken::default()
            })
            .collect();
        let has_context = !tokens.is_empty();
        tokens.extend(kept.into_iter().map(|idx| ScoredToken {
            id: Some(behind[idx]),
            logprob: values.get(idx).copied().flatten().filter(|_| acted(idx)),
            ..ScoredToken::default()
        }));
        if !has_context {
            forget_first(&mut tokens);
        }
        return Ok(tokens);
    }
    let Some(whole) = whole else {
        // Without ids the tokens are those of the other side.
        let token = |logprob: Option<f64>| ScoredToken {
            logprob,
            ..ScoredToken::default()
        };
        return Ok(values.into_iter().map(token).collect());
    };
    let ids = as_ids(whole)?;
    let mut tokens = of_lists(&ids, &values)?;
    if let Some(mask) = mask.filter(|mask| mask.len() == ids.len()) {
        let mut idx = 0;
        tokens.retain(|_| {
            idx += 1;
            is_one(&mask, idx - 1)
        });
        forget_first(&mut tokens);
    }
    Ok(tokens)
}

/// Prompts from rows of one token each, in the order in which prompts first occur.
pub(super) fn rows(rows: &[Tree]) -> Vec<ScoredPrompt> {
    let mut found: Vec<(String, Vec<(f64, ScoredToken)>)> = Vec::new();
    let mut at = std::collections::HashMap::new();
    for (idx, row) in rows.iter().enumerate() {
        let name = row.any(PROMPTS).map(|(_, name)| match name {
            Tree::Text(text) => text.clone(),
            other => other
                .number()
                .map_or_else(String::new, |value| value.to_string()),
        });
        let name = name.unwrap_or_else(|| "prompt".to_owned());
        let number = |keys: &[&'static str]| row.any(keys).map(|(_, value)| value);
        let piece = row
            .any(&["piece", "text", "token"])
            .and_then(|(_, piece)| piece.text());
        let top = match row.get("top") {
            // A table writes the list as a text.
            Some(Tree::Text(text)) => Tree::parse(text).ok(),
            top => top.cloned(),
        };
        let top = top
            .as_ref()
            .and_then(Tree::list)
            .unwrap_or_default()
            .iter()
            .filter_map(|one| {
                let pair = one.list()?;
                Some((pair.first()?.id()?, logprob(pair.get(1)?)?))
            });
        let token = ScoredToken {
            id: number(&["id", "token_id"])
                .or_else(|| number(&["token"]))
                .and_then(Tree::id),
            piece: piece.map(str::to_owned),
            logprob: number(TOKEN_LOGPROBS).and_then(logprob),
            top: sorted(top.collect()),
            is_special: false,
        };
        let position = number(POSITIONS)
            .and_then(Tree::number)
            .unwrap_or(idx as f64);
        let slot = *at.entry(name.clone()).or_insert_with(|| {
            found.push((name, Vec::new()));
            found.len() - 1
        });
        found[slot].1.push((position, token));
    }
    let finish = |(name, mut tokens): (String, Vec<(f64, ScoredToken)>)| {
        tokens.sort_by(|a, b| a.0.total_cmp(&b.0));
        prompt(name, tokens.into_iter().map(|(_, token)| token).collect())
    };
    found.into_iter().map(finish).collect()
}
