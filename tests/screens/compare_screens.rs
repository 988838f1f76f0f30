//! Two runs on screen: two checkpoints, two prompts, a trace as B, and what cannot stand beside A.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::Opening;
use attnscope_checks::stats::Stat;
use attnscope_prompt::Request;
use attnscope_screen::{Depth, Panel, Shows};
use attnscope_spec::Stack;
use attnscope_worker::Against;
use crossterm::event::KeyCode;
use testing::checkpoint_copy::Copy;
use testing::judged::fixture;
use testing::running::ran;
use testing::screen::Screen;

const SIZES: [(u16, u16); 2] = [(80, 24), (120, 40)];
const TEXT: &str = "the king took a quiet story in the night . a big cat sang in the green city .";

fn healthy(size: (u16, u16)) -> Screen {
    let path = Some(fixture("healthy"));
    Screen::open(path, Request::text(TEXT), size, Depth::Truecolor)
}

/// The healthy checkpoint with the queries of one head of layer 1 three times as large.
fn louder() -> Copy {
    let copy = Copy::of_directory(&fixture("healthy"));
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(fixture("healthy").join(file), copy.file(file)).expect("copies");
    }
    copy.weights(|weights| {
        let name = "transformer.h.1.attn.c_attn.weight";
        let stored = weights.get_mut(name).expect("a tensor");
        let (mut values, columns) = (stored.values(), stored.shape[1]);
        for row in values.chunks_mut(columns) {
            // Queries of head 2: 16 columns.
            row[32..48].iter_mut().for_each(|value| *value *= 3.0);
        }
        stored.bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    });
    copy
}

fn target(path: &Path) -> Against {
    Against::Target(Opening::from(Some(PathBuf::from(path))))
}

/// The name of a directory of its own differs from run to run.
fn shows(name: &str, (width, height): (u16, u16), screen: &mut Screen) {
    let picture = screen.picture();
    let lines = picture.lines().enumerate();
    let kept = lines.map(|(nth, line)| if nth == 0 { "(header)" } else { line });
    let picture = kept.collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(format!("{name}_{width}x{height}"), picture);
}

#[test]
fn two_checkpoints() {
    let other = louder();
    for size in SIZES {
        let mut screen = healthy(size);
        screen.against(target(other.path()));
        let header = screen.text().lines().next().expect("a line").to_owned();
        assert!(
            header.contains("AGAINST") && header.contains("Showing B − A"),
            "{header}"
        );
        screen.go(Panel::Compare);
        shows("compare", size, &mut screen);
        screen.typed("d");
        shows("compare_distance", size, &mut screen);
        screen.typed("d");
        screen.go(Panel::Overview);
        shows("compare_overview", size, &mut screen);
        screen.go(Panel::Tokens);
        shows("compare_tokens", size, &mut screen);
        screen.go(Panel::Model);
        shows("compare_model", size, &mut screen);
        screen.go(Panel::Checks);
        shows("compare_checks", size, &mut screen);
    }
}

#[test]
fn the_first_difference_is_where_one_thing_was_changed() {
    let other = louder();
    let mut screen = healthy((200, 60));
    screen.against(target(other.path()));
    screen.go(Panel::Compare);
    let comparison = screen.app.scene().comparison().expect("compared").clone();
    let first = comparison.first().expect("a difference");
    let at = (first.name(), first.layer_idx, first.head_idx);
    assert_eq!(at, ("q", Some(1), Some(2)));
    let text = screen.text();
    assert!(text.contains("differs first at q of L1 (head 2"), "{text}");
    assert!(text.contains("c_attn.weight"), "{text}");
    screen.typed("f");
    let at = screen.app.selection;
    assert_eq!((at.layer_idx, at.head_idx), (1, 2));
    assert_eq!(Some(at.query_idx), first.query_idx);
    // The other heads of the layer attend as they did.
    let distance = |head_idx: usize| {
        let head = screen.app.scene().compared_head(Stack::Only, 1, head_idx);
        head.expect("a head").divergence
    };
    assert!(distance(2) > 0.01, "{}", distance(2));
    assert!(
        (0..4)
            .filter(|idx| *idx != 2)
            .all(|idx| distance(idx) < 1e-9)
    );
}

#[test]
fn sides_come_in_turn_and_the_header_says_which() {
    let other = louder();
    let mut screen = healthy((120, 40));
    screen.against(target(other.path()));
    let entropy = |screen: &Screen| {
        let layers = screen.app.scene().layers_of(Stack::Only);
        layers[1].heads[2].stats.of(Stat::Entropy)
    };
    assert_eq!(screen.app.runs.shows, Shows::Difference);
    screen.typed("v");
    assert!(screen.text().contains("Showing A"));
    let of_a = entropy(&screen);
    screen.typed("v");
    assert!(screen.text().contains("Showing B"));
    assert!(
        entropy(&screen) < of_a,
        "larger scores attend to fewer keys"
    );
    // Another text is run through both.
    screen.typed("e");
    screen.typed(" the end");
    screen.key(KeyCode::Enter);
    let both = screen.app.scene().both_runs().expect("both");
    assert!(both.iter().all(|run| run.outcome().is_some()));
    assert_eq!(both[0].prompt.tokens, both[1].prompt.tokens);
    screen.typed("W");
    assert!(screen.app.runs.b.is_none());
    assert!(!screen.text().contains("AGAINST"));
}

#[test]
fn two_prompts_of_different_lengths() {
    for size in SIZES {
        let mut screen = healthy(size);
        screen.typed("E");
        shows("compare_edit", size, &mut screen);
        for _ in 0..200 {
            screen.key(KeyCode::Backspace);
        }
        screen.typed("the king took a very quiet story in the night . a cat sang .");
        screen.key(KeyCode::Enter);
        let both = screen.app.scene().both_runs().expect("both");
        let lengths = both.map(|run| run.prompt.tokens.len());
        assert!(lengths[1] < lengths[0], "{lengths:?}");
        screen.go(Panel::Compare);
        shows("compare_prompts", size, &mut screen);
        screen.go(Panel::Tokens);
        shows("compare_prompts_tokens", size, &mut screen);
        screen.go(Panel::Head);
        shows("compare_prompts_head", size, &mut screen);
    }
}

#[test]
fn the_selection_follows_the_tokens_from_one_text_to_the_other() {
    let mut screen = healthy((120, 40));
    screen.against(Against::Prompt(Request::text(
        "it sang . the king took a quiet story",
    )));
    screen.typed("v");
    screen.go(Panel::Tokens);
    // King: token 1 of A, token 4 of B.
    screen.typed("g");
    screen.key(KeyCode::Right);
    let token = |screen: &Screen| {
        screen.app.scene().token(
            attnscope_screen::Axis::Query,
            screen.app.selection.query_idx,
        )
    };
    assert_eq!(token(&screen), "king");
    screen.typed("v");
    assert_eq!(
        (screen.app.selection.query_idx, token(&screen).as_str()),
        (4, "king")
    );
    screen.typed("v");
    assert_eq!(screen.app.selection.query_idx, 4);
    screen.typed("v");
    assert_eq!(
        (screen.app.selection.query_idx, token(&screen).as_str()),
        (1, "king")
    );
}

/// A trace of what the screen shows, recorded from another checkpoint.
fn trace_of(copy: &Copy, hooks: &str) -> PathBuf {
    let to = copy.output("trace.safetensors");
    let (path, to_text) = (
        copy.path().to_str().expect("a path"),
        to.to_str().expect("a path"),
    );
    ran(&[
        "trace", path, TEXT, "--hooks", hooks, "--output", to_text, "--force",
    ]);
    to
}

#[test]
fn a_trace_as_b() {
    let other = louder();
    let trace = trace_of(&other, "scores,pattern");
    for size in SIZES {
        let mut screen = healthy(size);
        screen.against(target(&trace));
        screen.go(Panel::Compare);
        shows("compare_trace", size, &mut screen);
        // Hooks that the trace holds are compared, and nothing is said of knobs and tensors, which it has none of.
        assert!(screen.text().contains("first at scores of L1"));
        assert!(!screen.text().contains("every knob"));
        screen.typed("d");
        assert!(screen.text().contains("distance of patterns"));
        screen.typed("d");
        screen.go(Panel::Model);
        assert!(screen.text().contains("no knobs and no weights"));
        for panel in [
            Panel::Head,
            Panel::Scores,
            Panel::Tokens,
            Panel::Checks,
            Panel::Rows,
        ] {
            screen.go(panel);
            screen.frame();
        }
    }
}

#[test]
fn recorded_logits_are_the_predictions_of_a_trace() {
    let tokens = |trace: &PathBuf| {
        let mut screen = healthy((120, 40));
        screen.against(target(trace));
        screen.go(Panel::Tokens);
        screen.text()
    };
    let other = louder();
    let with_logits = tokens(&trace_of(&other, "scores,pattern,logits"));
    for column in ["KL", "loss A", "change"] {
        assert!(with_logits.contains(column), "{with_logits}");
    }
    let without = tokens(&trace_of(&other, "scores,pattern"));
    assert!(
        without.contains("holds attention, and no logits"),
        "{without}"
    );
    assert!(!without.contains("loss A"), "{without}");
}

#[test]
fn two_traces() {
    let [a, b] = ["correct", "dropped_mask"]
        .map(|name| fixture("captured").join(format!("{name}.safetensors")));
    let mut screen = Screen::open(Some(a), Request::ids(vec![1]), (120, 40), Depth::Truecolor);
    screen.against(target(&b));
    screen.go(Panel::Checks);
    let text = screen.text();
    assert!(text.contains("only B"), "{text}");
}

#[test]
fn what_cannot_stand_beside_a_is_one_line() {
    let refused = |against: Against| {
        let mut screen = healthy((120, 40));
        screen.against(against);
        assert!(screen.app.is_over);
        let said = screen.app.fatal.clone().expect("a reason");
        assert!(!said.contains('\n'), "{said}");
        said
    };
    // Another shape.
    let said = refused(target(&testing::checkpoint_copy::original("llama")));
    assert!(said.contains("cannot be run side by side"), "{said}");
    // No heads in common.
    let said = refused(target(&fixture("captured").join("correct.safetensors")));
    assert!(said.contains("no heads in common"), "{said}");
    // Too long a prompt.
    let said = refused(Against::Prompt(Request::text("the king ".repeat(60))));
    assert!(said.contains("64"), "{said}");
    // A probe.
    let said = refused(target(
        &fixture("captured").join("probe_correct.safetensors"),
    ));
    assert!(said.contains("probe"), "{said}");
}

#[test]
fn a_nan_on_one_side_stays_on_its_side() {
    let other = louder();
    other.weights(|weights| {
        let stored = weights
            .get_mut("transformer.h.1.attn.c_proj.weight")
            .expect("a tensor");
        stored.bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    let mut screen = healthy((120, 40));
    screen.against(target(other.path()));
    screen.go(Panel::Compare);
    let text = screen.text();
    assert!(
        text.contains("only B has a NaN or an infinity, from attn_out of L1 on"),
        "{text}"
    );
    screen.typed("v");
    assert!(screen.text().contains("Showing A"));
    let nonfinite = screen
        .app
        .scene()
        .both_runs()
        .expect("both")
        .map(|run| run.nonfinite.is_some());
    assert_eq!(nonfinite, [false, true]);
    for panel in Panel::ALL
        .into_iter()
        .filter(|panel| *panel != Panel::Story)
    {
        screen.go(panel);
        screen.typed("vvv");
        screen.frame();
    }
}

#[test]
fn findings_of_one_side_are_told_from_those_of_both() {
    let mut screen = healthy((120, 40));
    screen.typed("w");
    screen.typed("softmax_axis=queries");
    screen.key(KeyCode::Enter);
    screen.typed("v");
    screen.go(Panel::Checks);
    let text = screen.text();
    assert!(
        text.contains("only B") && text.contains("wrong-axis"),
        "{text}"
    );
}

#[test]
fn one_list_leads_to_everything_and_reads_the_tables() {
    for size in SIZES {
        let mut screen = healthy(size);
        screen.typed(":ent");
        shows("palette", size, &mut screen);
        screen.key(KeyCode::Esc);
        screen.typed("m");
        shows("palette_statistics", size, &mut screen);
        screen.key(KeyCode::Esc);
        screen.typed(":compare with it sat .");
        shows("palette_compare", size, &mut screen);
    }
    // Beside heads, the map of the chosen one, where there is room.
    let with_type = |size: (u16, u16)| {
        let mut screen = healthy(size);
        screen.typed(":L1H2 head");
        let text = screen.text();
        text.lines().filter(|line| line.contains("L1H2")).count()
    };
    assert_eq!(with_type((120, 40)), with_type((80, 24)) + 1);
    let mut screen = healthy((120, 40));
    screen.typed(":saturated rows");
    screen.key(KeyCode::Enter);
    assert_eq!(screen.app.scene().statistic().id, "saturated_rows");
    let lands = |screen: &mut Screen, typed: &str, panel: Panel| {
        screen.typed(":");
        screen.typed(typed);
        screen.key(KeyCode::Enter);
        assert_eq!(screen.app.panel, panel, "{typed}");
    };
    lands(&mut screen, "Tokens", Panel::Tokens);
    lands(&mut screen, "L1H3", Panel::Tokens);
    let at = screen.app.selection;
    assert_eq!((at.layer_idx, at.head_idx), (1, 3));
    lands(&mut screen, "L0", Panel::Tokens);
    assert_eq!(screen.app.selection.layer_idx, 0);
    lands(&mut screen, "transformer.h.1.mlp.c_fc.weight", Panel::Model);
    lands(&mut screen, "entropy-uniform", Panel::Checks);
    lands(&mut screen, "Overview", Panel::Overview);
    lands(&mut screen, "open the selected head", Panel::Head);
    lands(&mut screen, "compare with it sat .", Panel::Compare);
    assert!(screen.app.scene().both_runs().is_some());
    // What cannot be now says why.
    screen.typed("W");
    screen.typed(":back to A alone");
    screen.key(KeyCode::Enter);
    assert!(screen.text().contains("press w or E"), "{}", screen.text());
}

#[test]
fn a_path_that_is_not_there_is_told_and_a_stays() {
    let mut screen = healthy((120, 40));
    screen.typed(":compare with nowhere/at/all");
    screen.key(KeyCode::Enter);
    assert!(screen.app.fatal.is_none() && screen.app.runs.b.is_none());
    assert!(
        screen.text().contains("nowhere/at/all"),
        "{}",
        screen.text()
    );
}

#[test]
fn older_texts_are_offered_and_run_again() {
    let mut screen = healthy((120, 40));
    screen.typed("e");
    screen.typed(" it sat .");
    screen.key(KeyCode::Enter);
    let n_tokens = |screen: &Screen| {
        let run = screen.app.scene().run().expect("a run");
        run.prompt.tokens.len()
    };
    let n = n_tokens(&screen);
    screen.typed("e");
    screen.typed(" the end");
    screen.key(KeyCode::Enter);
    assert_ne!(n_tokens(&screen), n);
    screen.typed("e");
    screen.key(KeyCode::Up);
    screen.key(KeyCode::Up);
    screen.key(KeyCode::Enter);
    assert_eq!(n_tokens(&screen), n);
}

/// Screens of a short text, whose maps have a cell for each pair, and of a long one, of which the worker is asked.
fn short_and_long() -> [Screen; 2] {
    let words =
        "the old king gave a red apple to his good horse , and the old king gave a red apple ";
    [1, 6].map(|n_times| {
        let request = Request::text(words.repeat(n_times));
        Screen::open(None, request, (120, 40), Depth::Truecolor)
    })
}

#[test]
fn heads_are_sorted_by_what_the_selected_tokens_give_and_receive() {
    for mut screen in short_and_long() {
        (screen.app.selection.query_idx, screen.app.selection.key_idx) = (12, 3);
        let of = |screen: &mut Screen, typed: &str| -> Vec<f64> {
            screen.go(Panel::Overview);
            screen.typed(typed);
            screen.key(KeyCode::Enter);
            let scene = screen.app.scene();
            let layers = scene.layers_of(Stack::Only).iter();
            let heads =
                layers.flat_map(|layer| (0..layer.heads.len()).map(move |idx| (layer, idx)));
            heads
                .map(|(layer, idx)| scene.head_statistic(Shows::A, layer, idx))
                .collect()
        };
        let given = of(&mut screen, ":mass from this query");
        let received = of(&mut screen, ":mass on this key");
        // Against the heads in full.
        screen.go(Panel::Head);
        for (nth, (given, received)) in given.into_iter().zip(received).enumerate() {
            if nth > 0 {
                screen.typed("]");
            }
            let detail = screen.app.scene().shown_detail().expect("a head");
            let at = |query_idx: usize| f64::from(detail.pattern.finest().at(query_idx, 3));
            assert!((given - at(12)).abs() < 1e-6, "{given} against {}", at(12));
            let n = detail.n_queries;
            let mean = (3..n).map(at).sum::<f64>() / (n - 3) as f64;
            assert!((received - mean).abs() < 1e-5, "{received} against {mean}");
        }
    }
}
