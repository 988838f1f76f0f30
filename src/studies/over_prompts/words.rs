//! The text around a place: its query and key with the tokens near them.

use attnscope_forward::Input;
use attnscope_spec::Stack;

/// Tokens shown before and after the marked ones, and the most between them.
const AROUND: usize = 8;

const BETWEEN: usize = 24;

/// Texts of token ids. An encoder may read other ids than its decoder.
#[derive(Clone, Copy)]
pub struct Labels<'a> {
    pub source: &'a dyn Fn(u32) -> String,
    pub target: &'a dyn Fn(u32) -> String,
}

/// A query and a key as texts, with the tokens around them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Words {
    pub query: String,
    pub key: String,
    /// Tokens near both in the order of the text, each with what it is. Left-out tokens are one `…`.
    pub context: Vec<(Mark, String)>,
}

/// What a token of a context is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Query,
    Key,
    Other,
    /// Stands for tokens that are left out.
    Gap,
}

impl Words {
    /// Returns the texts of a place. In cross-attention the context is that of the key, in the encoder's text.
    pub(super) fn of(
        input: &Input,
        stack: Stack,
        (query_idx, key_idx): (usize, usize),
        labels: Labels<'_>,
    ) -> Self {
        let reads_source = |stack: Stack| matches!(stack, Stack::Encoder | Stack::Cross);
        let sequence = |is_source: bool| match &input.source {
            Some(source) if is_source => source,
            _ => &input.sequence,
        };
        let label = |is_source: bool, idx: usize| {
            let sequence = sequence(is_source);
            let has_text = sequence.picture.is_none() && sequence.sound.is_none();
            match sequence.tokens.get(idx) {
                Some(id) if has_text && is_source => (labels.source)(*id),
                Some(id) if has_text => (labels.target)(*id),
                _ => idx.to_string(),
            }
        };
        let (of_query, of_key) = (stack == Stack::Encoder, reads_source(stack));
        let n = sequence(of_key).len();
        let marked = |idx: usize| {
            if idx == key_idx {
                Mark::Key
            } else if idx == query_idx && stack != Stack::Cross {
                Mark::Query
            } else {
                Mark::Other
            }
        };
        let (first, last) = match stack {
            Stack::Cross => (key_idx, key_idx),
            _ => (query_idx.min(key_idx), query_idx.max(key_idx)),
        };
        let gap = || (Mark::Gap, "…".to_owned());
        let token = |idx: usize| (marked(idx), label(of_key, idx));
        let mut context = Vec::new();
        let begin = first.saturating_sub(AROUND);
        let end = (last + AROUND + 1).min(n);
        context.extend((begin > 0).then(gap));
        if last - first > BETWEEN {
            context.extend((begin..=first + BETWEEN / 2).map(token));
            context.push(gap());
            context.extend((last - BETWEEN / 2..end).map(token));
        } else {
            context.extend((begin..end).map(token));
        }
        context.extend((end < n).then(gap));
        Self {
            query: label(of_query, query_idx),
            key: label(of_key, key_idx),
            context,
        }
    }
}

#[cfg(test)]
mod tests {
    use attnscope_forward::Sequence;

    use super::*;

    fn words(n: u32, at: (usize, usize)) -> Words {
        let input = Input {
            source: None,
            sequence: Sequence::of_text((0..n).collect(), (0..n as usize).collect()),
        };
        let label = |id: u32| format!("t{id}");
        let labels = Labels {
            source: &label,
            target: &label,
        };
        Words::of(&input, Stack::Only, at, labels)
    }

    #[test]
    fn a_context_has_both_marks_and_says_where_tokens_are_left_out() {
        let all = words(6, (4, 1));
        assert_eq!((all.query.as_str(), all.key.as_str()), ("t4", "t1"));
        let marks: Vec<Mark> = all.context.iter().map(|(mark, _)| *mark).collect();
        use Mark::{Gap, Key, Other, Query};
        assert_eq!(marks, [Other, Key, Other, Other, Query, Other]);
        let far = words(500, (400, 100));
        let n = |mark: Mark| far.context.iter().filter(|(of, _)| *of == mark).count();
        assert_eq!((n(Gap), n(Key), n(Query)), (3, 1, 1));
        assert!(far.context.len() < 60, "{}", far.context.len());
    }
}
