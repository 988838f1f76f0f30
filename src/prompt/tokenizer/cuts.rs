//! How byte-level vocabularies of GGUF files split a text into words, by the name under `tokenizer.ggml.pre`.

use serde_json::{Value, json};

/// A way to split text into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Patterns of words, each applied to what the previous one left over.
    patterns: &'static [&'static str],
    /// Whether the text is first normalised to composed characters.
    composes: bool,
    /// Whether a word that is a token is taken without merging.
    pub keeps_whole: bool,
    /// Whether a text begins with a token if the file does not say.
    pub begins: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Single digits.
const ONES: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Digits in groups of three.
const THREES: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Combining marks belong to letters.
const MARKS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words begin at capitals; single digits.
const CAPITALS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words begin at capitals and end with contractions; digits in groups of three.
const CAPITALS_THREES: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[一-龥\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];
/// Words of scripts with capitals, with the explicit list of their letters.
const DEEPSEEK_FIRST: [&str; 6] = [
    r"[\r\n]",
    r"\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+",
    r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+",
    r"\s+$",
    r"[一-龥ࠀ-一가-\x{d7ff}]+",
    r"\p{N}",
];
/// Words begin at capitals; Chinese characters are separate words; digits in groups of three.
const KIMI: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words without sentence-ending punctuation of several scripts.
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

const PLAIN: Cut = Cut {
    patterns: &[GPT2],
    composes: false,
    keeps_whole: false,
    begins: false,
};

const LLAMA3: Cut = Cut {
    patterns: &[THREES],
    keeps_whole: true,
    begins: true,
    ..PLAIN
};

/// Names, with the way to split that each group of them stands for.
const CUTS: &[(&[&str], Cut)] = &[
    (
        &[
            "gpt-2",
            "gpt2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "modern-bert",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
            "jais",
            "trillion",
            "granite-docling",
        ],
        PLAIN,
    ),
    (
        // Their files use GPT-NeoX's vocabulary.
        &["mpt", "olmo"],
        Cut {
            composes: true,
            ..PLAIN
        },
    ),
    (
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "kormo",
            "f2llmv2",
            "megrez",
        ],
        Cut {
            patterns: &[ONES],
            composes: true,
            ..PLAIN
        },
    ),
    (
        &["hunyuan", "solar-open", "grok-2"],
        Cut {
            patterns: &[ONES],
            ..PLAIN
        },
    ),
    (
        &["qwen35"],
        Cut {
            patterns: &[MARKS],
            composes: true,
            ..PLAIN
        },
    ),
    (
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        LLAMA3,
    ),
    (
        &["smaug-bpe", "dbrx", "glm4", "chatglm-bpe"],
        Cut {
            keeps_whole: false,
            begins: false,
            ..LLAMA3
        },
    ),
    (
        &[
            "starcoder",
            "refact",
            "smollm",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        Cut {
            patterns: &[r"\p{N}", GPT2],
            ..PLAIN
        },
    ),
    (
        &["command-r"],
        Cut {
            patterns: &[r"\p{N}", GPT2],
            composes: true,
            ..PLAIN
        },
    ),
    (
        &["falcon"],
        Cut {
            patterns: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
            ..PLAIN
        },
    ),
    (
        &["default"],
        Cut {
            patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
            ..PLAIN
        },
    ),
    (
        &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        Cut {
            patterns: &DEEPSEEK,
            ..PLAIN
        },
    ),
    (
        &["deepseek-llm"],
        Cut {
            patterns: &DEEPSEEK_FIRST,
            ..PLAIN
        },
    ),
    (
        // A tiktoken vocabulary, which takes whole words first.
        &["kimi-k2"],
        Cut {
            patterns: &[KIMI],
            keeps_whole: true,
            ..PLAIN
        },
    ),
    (
        &["deepseek-coder"],
        Cut {
            patterns: &[
                r"[\r\n]",
                r"\s?\p{L}+",
                r"\s?\p{P}+",
                r"[一-龥ࠀ-一가-\x{d7ff}]+",
                r"\p{N}",
            ],
            ..PLAIN
        },
    ),
    (
        &["tekken"],
        Cut {
            patterns: &[CAPITALS],
            ..LLAMA3
        },
    ),
    (
        &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        Cut {
            patterns: &[CAPITALS_THREES],
            ..PLAIN
        },
    ),
    (
        &["bloom", "poro-chat", "gpt3-finnish"],
        Cut {
            patterns: &[BLOOM],
            ..PLAIN
        },
    ),
    (
        &["viking"],
        Cut {
            patterns: &[BLOOM, r"\p{N}"],
            ..PLAIN
        },
    ),
    (
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        Cut {
            patterns: &[
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
            ],
            ..PLAIN
        },
    ),
    (
        &["seed-coder"],
        Cut {
            patterns: &[
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
            ],
            ..PLAIN
        },
    ),
];

impl Cut {
    /// The way to split with a name; `None` for an unknown name.
    pub fn named(pre: &str) -> Option<Self> {
        let known = CUTS.iter().find(|(names, _)| names.contains(&pre));
        known.map(|(_, cut)| *cut)
    }

    /// The `normalizer` before splitting, in the form of `tokenizer.json`.
    pub fn normalizer(self) -> Value {
        if self.composes {
            json!({"type": "NFC"})
        } else {
            Value::Null
        }
    }

    /// The `pre_tokenizer`, in the form of `tokenizer.json`.
    pub fn pre_tokenizer(self, prefix_space: bool) -> Value {
        let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        // If GPT-2's pattern is the last, the byte-level step applies it, after it adds the blank before a text.
        let (patterns, own_words) = match self.patterns {
            [before @ .., GPT2] => (before, true),
            all => (all, false),
        };
        let mut steps: Vec<Value> = patterns.iter().map(split).collect();
        steps.push(json!({
            "type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": true, "use_regex": own_words,
        }));
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

#[cfg(test)]
mod tests {
    use tokenizers::{PreTokenizedString, PreTokenizer, PreTokenizerWrapper};

    use super::*;

    /// The words of a text, with bytes as byte-level vocabularies write them.
    fn words(pre: &str, text: &str) -> Vec<String> {
        let cut = Cut::named(pre).expect("a known name");
        let how: PreTokenizerWrapper =
            serde_json::from_value(cut.pre_tokenizer(false)).expect("patterns");
        let mut pieces = PreTokenizedString::from(text);
        how.pre_tokenize(&mut pieces).expect("cuts");
        let splits = pieces.get_splits(
            tokenizers::OffsetReferential::Original,
            tokenizers::OffsetType::Byte,
        );
        splits
            .into_iter()
            .map(|(word, ..)| word.to_owned())
            .collect()
    }

    #[test]
    fn every_pattern_compiles_and_loses_no_byte() {
        let text =
            "Hello  world, 12345 it's ÉCOLE\r\n\tनमस्ते 汉字かな ﬁ 3.14 «x» ¿y? __init__ 🦙\n\n ";
        for (names, _) in CUTS {
            for pre in *names {
                let n: usize = words(pre, text)
                    .iter()
                    .map(|word| word.chars().count())
                    .sum();
                assert_eq!(n, text.len(), "{pre}");
            }
        }
    }

    #[test]
    fn every_name_stands_for_one_way_to_split() {
        let mut all: Vec<&str> = CUTS.iter().flat_map(|(names, _)| *names).copied().collect();
        let n = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), n);
        assert_eq!(Cut::named("a-new-one"), None);
    }

    #[test]
    fn ways_to_split_differ_in_digits_capitals_and_punctuation() {
        for (pre, text, expected) in [
            ("gpt-2", "it's 12345!", vec!["it", "'s", "Ġ12345", "!"]),
            ("qwen2", "I'M 123", vec!["I", "'M", "Ġ", "1", "2", "3"]),
            ("dbrx", "a 12345", vec!["a", "Ġ", "123", "45"]),
            ("starcoder", "a 123", vec!["a", "Ġ", "1", "2", "3"]),
            ("smollm", "x=10", vec!["x", "=", "1", "0"]),
            ("command-r", "I'm 42", vec!["I", "'m", "Ġ", "4", "2"]),
            ("falcon", "a+b 12345", vec!["a", "+", "b", "Ġ", "123", "45"]),
            (
                "tekken",
                "HelloWorld 12",
                vec!["Hello", "World", "Ġ", "1", "2"],
            ),
            (
                "gpt-4o",
                "HelloWorld's 1234",
                vec!["Hello", "World's", "Ġ", "123", "4"],
            ),
            ("deepseek-v3", "a1234 .b", vec!["a", "123", "4", "Ġ.", "b"]),
            (
                "deepseek-llm",
                "Ab c, 123\u{212a}!",
                vec!["Ab", "Ġc", ",", "Ġ", "1", "2", "3", "âĦª", "!"],
            ),
            (
                "kimi-k2",
                "HelloWorld's 汉字abc中1234",
                vec!["Hello", "World's", "Ġ", "æ±īåŃĹ", "abc", "ä¸Ń", "123", "4"],
            ),
            ("mpt", " 12 x", vec!["Ġ12", "Ġx"]),
            ("bloom", "a,b c", vec!["a", ",", "b", "Ġc"]),
        ] {
            assert_eq!(words(pre, text), expected, "{pre}: {text:?}");
        }
    }
}
