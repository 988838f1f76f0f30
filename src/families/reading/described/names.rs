//! Hints from tensor names: their words, and how well these match each part of a model.

/// Splits a name into lower-case words: at signs, at numbers, and before a capital after a small letter.
pub fn words_of(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut last = None;
    for character in name.chars() {
        let kind = match character {
            c if c.is_ascii_digit() => Kind::Digit,
            c if c.is_uppercase() => Kind::Upper,
            c if c.is_alphanumeric() => Kind::Lower,
            _ => Kind::Sign,
        };
        let goes_on = match (last, kind) {
            (_, Kind::Sign) => {
                last = None;
                continue;
            }
            (None, _) => false,
            (Some(Kind::Digit), kind) => kind == Kind::Digit,
            (Some(_), Kind::Digit) => false,
            (Some(Kind::Lower), Kind::Upper) => false,
            _ => true,
        };
        last = Some(kind);
        let lower = character.to_lowercase();
        match words.last_mut().filter(|_| goes_on) {
            Some(word) => word.extend(lower),
            None => words.push(lower.collect()),
        }
    }
    words
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Digit,
    Upper,
    Lower,
    Sign,
}

/// Part of a model that a tensor may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Q,
    K,
    V,
    Kv,
    Qkv,
    O,
    Up,
    Gate,
    GateUp,
    Down,
    Tokens,
    Positions,
    TokenTypes,
    Unembed,
    HeadDense,
}

const ATTENTION: &[&str] = &[
    "att",
    "attn",
    "attns",
    "attention",
    "attentions",
    "mh",
    "mha",
    "mhsa",
    "mqa",
    "gqa",
    "sa",
    "selfattn",
    "selfattention",
    "mix",
    "mixer",
    "heads",
    "look",
    "attend",
];
const FEED_FORWARD: &[&str] = &[
    "mlp",
    "ffn",
    "ff",
    "feed",
    "feedforward",
    "fwd",
    "ffwd",
    "swiglu",
    "glu",
    "geglu",
    "channel",
    "fc",
    "intermediate",
    "think",
    "ffnn",
    "dense",
    "mlps",
    "pw",
];

/// Words that suggest a part.
fn own_words(role: Role) -> &'static [&'static str] {
    match role {
        Role::Q => &[
            "q",
            "wq",
            "query",
            "queries",
            "qry",
            "toq",
            "qproj",
            "ask",
            "qs",
            "pq",
            "quer",
            "toquery",
            "toqueries",
        ],
        Role::K => &[
            "k", "wk", "key", "keys", "tok", "kproj", "ks", "pk", "tokey", "tokeys",
        ],
        Role::V => &[
            "v", "wv", "value", "values", "val", "vals", "tov", "vproj", "vs", "pv", "tovalue",
            "tovalues",
        ],
        Role::Kv => &["kv", "wkv", "vk", "tokv", "keyvalue", "kvs"],
        Role::Qkv => &[
            "qkv", "wqkv", "kqv", "vkq", "qvk", "toqkv", "inproj", "packed", "fused", "triple",
            "qkvs", "cattn",
        ],
        Role::O => &[
            "o",
            "wo",
            "out",
            "output",
            "proj",
            "oproj",
            "merge",
            "unify",
            "back",
            "combine",
            "outproj",
            "join",
            "toout",
            "po",
            "answer",
            "unifyheads",
        ],
        Role::Up => &[
            "up", "fc1", "expand", "in", "inner", "wi", "widen", "grow", "hidden", "first",
            "enlarge", "rise", "wide", "val", "lift",
        ],
        Role::Gate => &["gate", "gating", "g", "wg", "gated", "switch", "act", "sw"],
        Role::GateUp => &[
            "gu", "gateup", "upgate", "gated", "in", "up", "fused", "both",
        ],
        Role::Down => &[
            "down", "contract", "shrink", "out", "wo", "output", "proj", "narrow", "back",
            "second", "fall", "reduce",
        ],
        Role::Tokens => &[
            "tok",
            "token",
            "tokens",
            "wte",
            "emb",
            "embed",
            "embedding",
            "embeddings",
            "word",
            "words",
            "vocab",
            "lookup",
            "char",
            "chars",
            "symbol",
            "symbols",
            "dictionary",
            "lex",
            "lut",
            "in",
            "input",
            "byte",
            "bytes",
            "letters",
            "letter",
        ],
        Role::Positions => &[
            "pos",
            "position",
            "positions",
            "wpe",
            "pe",
            "place",
            "places",
            "positional",
            "where",
            "loc",
            "time",
            "order",
            "posemb",
            "slot",
            "slots",
            "clock",
            "index",
        ],
        Role::TokenTypes => &["type", "types", "segment", "segments", "seg", "sentence"],
        Role::Unembed => &[
            "head",
            "unembed",
            "lm",
            "logits",
            "logit",
            "out",
            "output",
            "decoder",
            "classifier",
            "readout",
            "generator",
            "vocab",
            "predict",
            "prediction",
            "final",
            "to",
            "cls",
            "mlm",
            "fc",
            "project",
            "voice",
            "speak",
            "answer",
            "score",
            "scores",
            "last",
            "exit",
        ],
        Role::HeadDense => &[
            "dense",
            "transform",
            "head",
            "cls",
            "mlm",
            "predictions",
            "pooler",
        ],
    }
}

/// Whether a word names a part.
pub fn is_named(role: Role, words: &[String]) -> bool {
    let own = own_words(role);
    words.iter().any(|word| own.contains(&word.as_str()))
}

/// Whether words name an attention module.
pub fn is_of_attention(words: &[String]) -> bool {
    words.iter().any(|word| ATTENTION.contains(&word.as_str()))
}

/// Whether words name a feed-forward module.
pub fn is_of_feed_forward(words: &[String]) -> bool {
    words
        .iter()
        .any(|word| FEED_FORWARD.contains(&word.as_str()))
}

/// How well words match a part: more is better, and 0 means no hint.
pub fn score(role: Role, words: &[String]) -> i32 {
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    let n_own = words
        .iter()
        .filter(|word| own_words(role).contains(&word.as_str()))
        .count()
        .min(2);
    let own = match role {
        // Short names of Q, K and V say more than words used for any map.
        Role::Q | Role::K | Role::V | Role::Kv | Role::Qkv => 4 * n_own.min(1) as i32,
        Role::Positions => 4 * n_own as i32,
        Role::Gate => 3 * n_own.min(1) as i32,
        _ => 2 * n_own as i32,
    };
    let number = |text: &str| words.iter().any(|word| word == text);
    let of_numbers = match role {
        Role::Up if number("1") || number("0") || number("3") => 1,
        Role::Gate if number("1") => 1,
        Role::Down if number("2") => 1,
        _ => 0,
    };
    let pairs = words.windows(2).filter(|pair| {
        let pair = [pair[0].as_str(), pair[1].as_str()];
        match role {
            Role::Qkv => matches!(
                pair,
                ["in", "proj"] | ["c", "attn"] | ["key", "value"] | ["w", "qkv"]
            ),
            Role::O => matches!(pair, ["out", "proj"] | ["c", "proj"] | ["w", "o"]),
            _ => false,
        }
    });
    let is_attention = has(ATTENTION);
    let is_feed_forward = has(FEED_FORWARD);
    let context = match role {
        Role::Q | Role::K | Role::V | Role::Kv | Role::Qkv | Role::O => {
            2 * i32::from(is_attention) - 3 * i32::from(is_feed_forward && !is_attention)
        }
        Role::Up | Role::Gate | Role::GateUp | Role::Down => {
            2 * i32::from(is_feed_forward) - 3 * i32::from(is_attention && !is_feed_forward)
        }
        Role::Tokens => {
            -3 * i32::from(has(own_words(Role::Positions)) || has(own_words(Role::TokenTypes)))
        }
        _ => 0,
    };
    own + of_numbers + 2 * pairs.count() as i32 + context
}

/// Words that mark weights and gains.
const WEIGHTS: &[&str] = &[
    "weight", "weights", "w", "kernel", "matrix", "mat", "gamma", "gain", "g", "scale", "scales",
    "alpha", "a", "table", "linear", "lin",
];
/// Words that mark biases.
const BIASES: &[&str] = &[
    "bias", "biases", "b", "beta", "offset", "shift", "off", "add", "c",
];

/// Whether a name belongs to a bias, judged by its last words.
pub fn is_bias(words: &[String]) -> bool {
    let last = words.iter().rev().take(2);
    last.clone()
        .any(|word| BIASES.contains(&word.as_str()) && word != "c")
        || words.last().is_some_and(|word| is_short(word, 'b'))
}

/// Whether a word is a short name such as `bq` or `wq`: the letter followed by the name of the map.
fn is_short(word: &str, letter: char) -> bool {
    word.len() == 2 && word.starts_with(letter) && !["by", "be", "wo"].contains(&word)
        || word == "bo" && letter == 'b'
        || word == "bqkv" && letter == 'b'
        || word == "wo" && letter == 'w'
        || word == "wqkv" && letter == 'w'
}

/// Name without the words that distinguish weights from biases, so that those of one map have the same stem.
pub fn stem(words: &[String]) -> Vec<String> {
    let mut stem: Vec<String> = Vec::new();
    for word in words {
        if WEIGHTS.contains(&word.as_str()) || (BIASES.contains(&word.as_str())) {
            continue;
        }
        let is_paired = is_short(word, 'w') || is_short(word, 'b');
        stem.push(if is_paired {
            word[1..].to_owned()
        } else {
            word.clone()
        });
    }
    stem
}

/// How well words match a place of a norm.
pub fn norm_score(place: &str, words: &[String]) -> i32 {
    let has = |list: &[&str]| i32::from(words.iter().any(|word| list.contains(&word.as_str())));
    let (attention, feed_forward) = (has(ATTENTION), has(FEED_FORWARD));
    let (first, second) = (
        has(&["1", "0", "first", "a", "one"]),
        has(&["2", "second", "b", "two"]),
    );
    let after = has(&["post", "after", "out", "output", "behind", "end"]);
    let before = has(&["pre", "before", "in", "input", "prenorm"]);
    match place {
        "attn_pre" => 2 * attention + 2 * first + before - after - 2 * feed_forward - second,
        "mlp_pre" => 2 * feed_forward + 2 * second + before - after - 2 * attention - first,
        "attn_out" | "attn_post" => 2 * attention + first + 2 * after - before - 2 * feed_forward,
        "mlp_out" | "mlp_post" => 2 * feed_forward + second + 2 * after - before - 2 * attention,
        "final_norm" => {
            2 * has(&[
                "final", "last", "out", "f", "end", "post", "output", "head", "fin", "top", "exit",
            ]) - 2 * has(&["emb", "embed", "embedding", "embeddings", "in"])
        }
        "embed_norm" => {
            3 * has(&[
                "emb",
                "embed",
                "embedding",
                "embeddings",
                "in",
                "input",
                "pre",
                "stem",
                "start",
            ]) - has(&["final", "last", "f"])
        }
        "head_norm" => 2 * has(&["head", "cls", "mlm", "transform", "predictions", "decoder"]),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(
            words_of("enc.3.attWq_fc1.W_Q"),
            ["enc", "3", "att", "wq", "fc", "1", "w", "q"]
        );
        assert_eq!(words_of("LayerNorm"), ["layer", "norm"]);
    }

    #[test]
    fn a_weight_and_its_bias_have_the_same_stem() {
        for (weight, bias) in [
            ("att.wq", "att.bq"),
            ("mlp.fc1.weight", "mlp.fc1.bias"),
            ("ln1_g", "ln1_b"),
            ("w1", "b1"),
            ("norm.gamma", "norm.beta"),
            ("lin_w", "lin_b"),
        ] {
            assert_eq!(stem(&words_of(weight)), stem(&words_of(bias)), "{weight}");
            assert!(
                is_bias(&words_of(bias)) && !is_bias(&words_of(weight)),
                "{bias}"
            );
        }
        assert_ne!(stem(&words_of("att.wq")), stem(&words_of("att.bk")));
    }

    #[test]
    fn names_score_highest_for_their_own_parts() {
        let best = |name: &str, roles: &[Role]| {
            let words = words_of(name);
            roles
                .iter()
                .copied()
                .max_by_key(|role| score(*role, &words))
        };
        let of_layer = [Role::Q, Role::K, Role::V, Role::O, Role::Gate, Role::Down];
        assert_eq!(best("att.query_proj", &of_layer), Some(Role::Q));
        assert_eq!(best("mix.to_v.weight", &of_layer), Some(Role::V));
        assert_eq!(best("attn.c_proj", &of_layer), Some(Role::O));
        assert_eq!(best("mlp.c_proj", &of_layer), Some(Role::Down));
    }
}
