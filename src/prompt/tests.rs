//! Requests become prompts that run, or are refused with a reason.

use super::*;

const LIMITS: Limits = Limits {
    d_vocab: 10,
    d_vocab_target: None,
    n_ctx: Some(4),
    n_ctx_target: None,
    is_n_ctx_hard: true,
    positions: PositionRule::Index,
    start_token: None,
    starts: Starts::NONE,
    preprocessing: None,
    sound: None,
    rows_of_target: None,
};

fn ids_only() -> PromptForm {
    PromptForm::Ids("no tokenizer.json".to_owned())
}

fn refusal(request: &Request) -> String {
    prepare(request, &ids_only(), LIMITS)
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn the_error_for_an_id_outside_the_vocabulary_names_its_place() {
    let message = refusal(&Request::ids(vec![3, 10]));
    assert!(
        message.contains("id 10") && message.contains("position 1") && message.contains("0..9"),
        "{message}"
    );
}

#[test]
fn empty_prompts_texts_without_a_tokenizer_and_wrong_masks_are_refused() {
    assert!(refusal(&Request::ids(vec![])).contains("empty"));
    assert!(refusal(&Request::text("hello")).contains("tokenizer.json"));
    let request = Request {
        attention_mask: Some(vec![true; 3]),
        ..Request::ids(vec![1, 2])
    };
    let message = refusal(&request);
    assert!(
        message.contains("expected 2") && message.contains("found 3"),
        "{message}"
    );
    let request = Request {
        attention_mask: Some(vec![false; 2]),
        ..Request::ids(vec![1, 2])
    };
    assert!(refusal(&request).contains("only padding"));
}

#[test]
fn a_long_prompt_is_refused_or_truncated_on_request() {
    let request = Request::ids(vec![1; 6]);
    assert!(refusal(&request).contains("6 tokens"));
    let cut = prepare(
        &Request {
            truncate: true,
            ..request
        },
        &ids_only(),
        LIMITS,
    )
    .expect("cut");
    assert_eq!((cut.tokens.len(), cut.n_cut), (4, 2));
}

#[test]
fn a_truncated_target_leaves_a_position_for_its_start_token() {
    let limits = Limits {
        d_vocab: 300,
        n_ctx: Some(40),
        n_ctx_target: Some(4),
        start_token: Some(7),
        ..LIMITS
    };
    let request = Request {
        target: Target::Text("abcdef".to_owned()),
        truncate: true,
        ..Request::text("ab")
    };
    let bytes = PromptForm::Tokenizer(Tokenizer::bytes());
    let cut = prepare(&request, &bytes, limits).expect("fits");
    assert_eq!(cut.tokens, [7, 97, 98, 99]);
}

#[test]
fn positions_can_be_counted_over_real_tokens() {
    let request = Request {
        attention_mask: Some(vec![false, false, true, true]),
        positions: Positions::Mask,
        ..Request::ids(vec![1; 4])
    };
    assert_eq!(
        prepare(&request, &ids_only(), LIMITS)
            .expect("fits")
            .positions,
        [0, 0, 0, 1]
    );
}
#[test]
fn a_target_gets_the_start_token_unless_ids_are_given() {
    let limits = Limits {
        start_token: Some(7),
        ..LIMITS
    };
    let target = |target: Target| {
        let request = Request {
            target,
            ..Request::ids(vec![1, 2, 3])
        };
        prepare(&request, &ids_only(), limits).expect("fits")
    };
    let written = target(Target::Generate(9));
    assert_eq!(
        (written.tokens.as_slice(), written.n_to_generate),
        (&[7][..], 3)
    );
    assert_eq!(written.given().tokens, [1, 2, 3]);
    let verbatim = target(Target::Ids(vec![4, 5]));
    assert_eq!(
        (verbatim.tokens.as_slice(), verbatim.n_to_generate),
        (&[4, 5][..], 0)
    );
    let request = Request {
        target: Target::Ids(vec![1]),
        ..Request::ids(vec![1])
    };
    assert!(
        prepare(&request, &ids_only(), LIMITS).is_err(),
        "one stack has no target"
    );
    // A decoder with fewer positions than its encoder.
    let short = Limits {
        n_ctx_target: Some(2),
        ..limits
    };
    let request = |target: Target| Request {
        target,
        ..Request::ids(vec![1, 2, 3])
    };
    let refused = prepare(&request(Target::Ids(vec![7, 1, 2])), &ids_only(), short);
    let said = refused.expect_err("too long a target").to_string();
    assert!(said.contains("the model 2 positions"), "{said}");
    let written = prepare(&request(Target::Generate(9)), &ids_only(), short).expect("fits");
    assert_eq!(written.n_to_generate, 1);
}
