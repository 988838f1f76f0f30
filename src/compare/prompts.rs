//! Checks whether two sides can run one prompt: equal ids, and within the context of both models or of neither.

use attnscope_prompt::Prompt;
use attnscope_spec::Model;

/// Describes where two tokenizers split a text differently; `None` if they give the same ids.
pub fn tokenizers_differ(a: &Prompt, b: &Prompt) -> Option<String> {
    if a.tokens == b.tokens {
        return None;
    }
    let pairs = a.tokens.iter().zip(&b.tokens);
    let at = pairs.take_while(|(a, b)| a == b).count();
    let piece = |prompt: &Prompt| match (prompt.tokens.get(at), prompt.labels.get(at)) {
        (Some(id), Some(label)) => format!("{id} {label:?}"),
        _ => "nothing".to_owned(),
    };
    Some(format!(
        "the tokenizers differ at position {at}: {} and {} ({} and {} tokens)",
        piece(a),
        piece(b),
        a.tokens.len(),
        b.tokens.len()
    ))
}

/// Describes which model's context a prompt exceeds, if it exceeds only one.
pub fn beyond_one_context(prompt: &Prompt, [a, b]: [&Model; 2]) -> Option<String> {
    let longest = prompt.longest();
    let n = longest.tokens.len().max(longest.given().tokens.len());
    let limit = |model: &Model| model.spec.n_ctx.filter(|n_ctx| n > *n_ctx);
    let (short, n_ctx) = match (limit(a), limit(b)) {
        (Some(n_ctx), None) => (a, n_ctx),
        (None, Some(n_ctx)) => (b, n_ctx),
        _ => return None,
    };
    Some(format!(
        "expected at most {n_ctx} tokens, the context of {}, found {n}: the other side takes more",
        short.checkpoint.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokenizers_that_split_differently_are_reported_at_the_first_differing_id() {
        let of = |tokens: &[u32]| Prompt {
            tokens: tokens.to_vec(),
            labels: tokens.iter().map(u32::to_string).collect(),
            ..Prompt::default()
        };
        assert_eq!(tokenizers_differ(&of(&[1, 2]), &of(&[1, 2])), None);
        let said = tokenizers_differ(&of(&[1, 2, 3]), &of(&[1, 5]));
        assert_eq!(
            said.as_deref(),
            Some("the tokenizers differ at position 1: 2 \"2\" and 5 \"5\" (3 and 2 tokens)")
        );
        let said = tokenizers_differ(&of(&[1]), &of(&[1, 5])).expect("differ");
        assert!(said.contains("position 1: nothing and 5"), "{said}");
    }
}
