//! The table of all keys: dispatch, footer, help and docs all read it.

use crossterm::event::{KeyCode, KeyModifiers};

use super::panel::Panel;

/// The action of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Quit,
    Stop,
    Back,
    Help,
    Find,
    Palette,
    PickStatistic,
    Edit,
    StopRun,
    ReadAgain,
    Export,
    ExportFigure,
    WhatIf,
    ClearSecond,
    EditSecond,
    ToggleDistance,
    GoToFirst,
    NextSide,
    Go(Panel),
    NextPanel,
    PreviousPanel,
    OpenHead,
    NextGrid,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    First,
    Last,
    Write,
    NextHead,
    PreviousHead,
    NextLayer,
    PreviousLayer,
    NextStatistic,
    PreviousStatistic,
    NextMap,
    ToggleLog,
    ToggleFirstKey,
    ZoomIn,
    ZoomOut,
    ZoomFit,
    ToggleReceived,
    TensorStats,
    ScrollKnobsDown,
    ScrollKnobsUp,
    OpenFinding,
    ToggleLayerSweep,
    OpenPage,
    Probe,
    NextType,
    ToggleNumbers,
    FirstKey,
    LastKey,
    PageLeft,
    PageRight,
    OpenStep,
    MarkStep,
    NextOnset,
    PreviousOnset,
    ReadStepAgain,
    NextMeasure,
    DropHead,
    OpenExcited,
    SwapAxes,
    RunPrompts,
    Copy,
    Bookmark,
    Bookmarks,
    NextMatch,
    PreviousMatch,
    GoToStrongest,
    Backward,
    Forward,
    Undo,
    Redo,
    MarkHead,
    MarkUp,
    MarkDown,
    MarkLeft,
    MarkRight,
    MarkMatches,
    ClearMarks,
    DropMarked,
    CompareMarked,
    FocusNext,
    FocusPrevious,
    ZoomPane,
    WidenPane,
    NarrowPane,
    HeightenPane,
    LowerPane,
    ResetPanes,
    Runs,
    NextRunA,
    NextRunB,
    /// A command of the settings, by its index.
    Command(usize),
}

impl Action {
    /// Whether it draws a range of marks further.
    pub fn marks_range(self) -> bool {
        matches!(
            self,
            Self::MarkUp | Self::MarkDown | Self::MarkLeft | Self::MarkRight
        )
    }
}

/// One row of the table.
pub struct Binding {
    pub chords: &'static [(KeyCode, KeyModifiers)],
    /// The keys as text.
    pub shown: &'static str,
    pub action: Action,
    /// One or two words for the footer; empty keeps the action out of it.
    pub label: &'static str,
    pub help: &'static str,
    pub group: Group,
    /// Panels in which it applies; empty for all.
    pub panels: &'static [Panel],
    /// Requirement without which the action does nothing.
    pub needs: Need,
}

impl Binding {
    /// Whether it applies in a panel.
    pub fn is_in(&self, panel: Panel) -> bool {
        self.panels.is_empty() || self.panels.contains(&panel)
    }
}

/// Requirement of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Nothing,
    /// An open model, trace or other subject.
    Subject,
    /// A run, finished or not.
    Run,
    /// Work in progress that can be stopped.
    Work,
    /// A finished run of a model that was not probed.
    Unasked,
    /// The pattern of the head is shown, not another map.
    Pattern,
    /// More than one grid of heads.
    Grids,
    /// A subject that can run another text.
    AnotherText,
    /// A model that can run a second text beside the first.
    AnotherPrompt,
    /// A subject whose attention can be changed by what-ifs.
    WhatIf,
    /// A model that predicts the next token.
    Writer,
    /// Files that can be read again.
    Files,
    /// A second run.
    Second,
    /// More than one run of the session.
    Runs,
    /// Patterns of A and B with a distance.
    Distance,
    /// A hook at which A and B differ.
    Difference,
    Training,
    Story,
    Bookmarks,
    /// A list to filter, or something that the finder can go to.
    Searchable,
    /// A filter or a search; its keys come before others.
    Match,
    /// Something that the open panel shows: two runs in Compare, a sweep in Sweep, and the like.
    Shown,
    /// A large enough terminal.
    Room,
}

/// Headings of help and docs, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Everywhere,
    Moving,
    Lists,
    Overview,
    Head,
    Tokens,
    Model,
    Checks,
    Compare,
    History,
    Sweep,
    Effect,
    Prompts,
}

impl Group {
    pub const ALL: [Self; 13] = [
        Self::Everywhere,
        Self::Moving,
        Self::Lists,
        Self::Overview,
        Self::Head,
        Self::Tokens,
        Self::Model,
        Self::Checks,
        Self::Compare,
        Self::History,
        Self::Sweep,
        Self::Effect,
        Self::Prompts,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Everywhere => "Everywhere",
            Self::Moving => "Moving",
            Self::Lists => "Lists and several heads",
            Self::Overview => "Overview and Scores",
            Self::Head => "Head",
            Self::Tokens => "Tokens",
            Self::Model => "Model",
            Self::Checks => "Checks",
            Self::Compare => "Compare",
            Self::History => "History",
            Self::Sweep => "Sweep",
            Self::Effect => "Effect",
            Self::Prompts => "Prompts",
        }
    }
}

const NONE: KeyModifiers = KeyModifiers::NONE;

const fn char(c: char) -> (KeyCode, KeyModifiers) {
    (KeyCode::Char(c), NONE)
}

const fn key(code: KeyCode) -> (KeyCode, KeyModifiers) {
    (code, NONE)
}

macro_rules! binding {
    ($chords:expr, $shown:literal, $action:expr, $label:literal, $help:literal, $group:ident, $panels:expr, $needs:ident) => {
        Binding {
            chords: $chords,
            shown: $shown,
            action: $action,
            label: $label,
            help: $help,
            group: Group::$group,
            panels: $panels,
            needs: Need::$needs,
        }
    };
}

use Panel::{
    Checks, Compare, Effect, Head, History, Model, Overview, Prompts, Rows, Scores, Story, Sweep,
    Tokens,
};

/// All keys. The first matching row wins; no panel has the same chord twice.
#[rustfmt::skip]
pub static BINDINGS: &[Binding] = &[
    binding!(&[key(KeyCode::Enter)], "Enter", Action::OpenHead, "open head", "open the selected head", Overview, &[Overview, Scores, Tokens, Compare, Rows, Effect], Run),
    binding!(&[char('m')], "m", Action::PickStatistic, "statistic", "choose a statistic from a list that says what each means", Overview, &[Overview, Scores, Compare, History, Prompts], Nothing),
    binding!(&[char('n')], "n", Action::NextStatistic, "", "colour the grid by the next statistic", Overview, &[Overview, Scores, Compare, History, Prompts], Nothing),
    binding!(&[char('M')], "M", Action::PreviousStatistic, "", "colour the grid by the previous statistic", Overview, &[Overview, Scores, Compare, History, Prompts], Nothing),
    binding!(&[char('t')], "t", Action::NextType, "type", "show only one type of head; again for the next type", Overview, &[Overview], Shown),
    binding!(&[char('a')], "a", Action::ToggleNumbers, "maps/numbers", "show every head as a small map, or as a number", Overview, &[Overview], Nothing),
    binding!(&[char('+'), char('=')], "+", Action::ZoomIn, "zoom", "show the heads of the selected layer alone, larger; again to open the head", Overview, &[Overview], Run),
    binding!(&[char('-')], "-", Action::ZoomOut, "", "show the heads of all layers again", Overview, &[Overview], Run),
    binding!(&[char('s')], "s", Action::NextMap, "map", "show the next map: pattern, scores, contribution", Head, &[Head, Compare], Shown),
    binding!(&[char('L')], "L", Action::ToggleLog, "log", "switch between linear and logarithmic colour", Head, &[Head, Compare], Shown),
    binding!(&[char('z')], "z", Action::ToggleFirstKey, "hide first key", "leave the first key out and renormalise", Head, &[Head], Pattern),
    binding!(&[char('+'), char('=')], "+", Action::ZoomIn, "zoom", "zoom in", Head, &[Head], Nothing),
    binding!(&[char('-')], "-", Action::ZoomOut, "", "zoom out", Head, &[Head], Nothing),
    binding!(&[key(KeyCode::Home)], "Home", Action::FirstKey, "", "to the first key; g to the first query", Head, &[Head], Nothing),
    binding!(&[key(KeyCode::End)], "End", Action::LastKey, "", "to the last key; Ctrl-End to the last query", Head, &[Head], Nothing),
    binding!(&[char('<')], "<", Action::PageLeft, "", "ten keys to the left; PgUp and PgDn move ten queries", Head, &[Head], Nothing),
    binding!(&[char('>')], ">", Action::PageRight, "", "ten keys to the right", Head, &[Head], Nothing),
    binding!(&[char('0')], "0", Action::ZoomFit, "", "fit the map to the panel", Head, &[Head], Nothing),
    binding!(&[key(KeyCode::Enter)], "Enter", Action::GoToStrongest, "", "select the key that the query gives most to", Head, &[Head], Run),
    binding!(&[char('r')], "r", Action::ToggleReceived, "gives/receives", "shade by what the query gives or the key receives", Tokens, &[Tokens], Nothing),
    binding!(&[key(KeyCode::Enter)], "Enter", Action::TensorStats, "figures", "compute min, max, mean and NaN count of the tensor", Model, &[Model], Shown),
    binding!(&[char('J')], "J", Action::ScrollKnobsDown, "knobs", "scroll the knobs down", Model, &[Model], Nothing),
    binding!(&[char('K')], "K", Action::ScrollKnobsUp, "", "scroll the knobs up", Model, &[Model], Nothing),
    binding!(&[key(KeyCode::Enter)], "Enter", Action::OpenFinding, "open", "unfold or fold findings that are alike, as → and ← do; or open the head of the finding, with its query and key", Checks, &[Checks], Run),
    binding!(&[char('i')], "i", Action::OpenPage, "explain", "all of the finding: what to do, what the check does, why it matters, and its false alarms", Checks, &[Checks], Run),
    binding!(&[char('p')], "p", Action::Probe, "probe", "ask the model on changed prompts, and look at its weights: leaks, and how it was trained", Checks, &[Checks], Unasked),
    binding!(&[char('d')], "d", Action::ToggleDistance, "distance", "colour heads by the distance of their patterns, or by the statistic", Compare, &[Compare], Distance),
    binding!(&[char('f')], "f", Action::GoToFirst, "first", "select the head, query and key at which A and B differ first", Compare, &[Compare], Difference),
    binding!(&[key(KeyCode::Enter)], "Enter", Action::OpenStep, "open step", "open the selected step as A: all panels show it", History, &[History], Training),
    binding!(&[char(' ')], "Space", Action::MarkStep, "compare", "mark the selected step as B, to compare A with it; again takes the mark back", History, &[History], Training),
    binding!(&[char('f')], "f", Action::NextOnset, "finding", "to the step and head at which the next finding begins, or to the next trend", History, &[History], Training),
    binding!(&[char('F')], "F", Action::PreviousOnset, "", "to the finding before", History, &[History], Training),
    binding!(&[char('r')], "r", Action::ReadStepAgain, "", "read the files of the selected step again", History, &[History], Training),
    binding!(&[char('a')], "a", Action::ToggleLayerSweep, "whole layer", "sweep all heads of the layer too", Sweep, &[Panel::Sweep], Shown),
    binding!(&[char('n'), char('m')], "n", Action::NextMeasure, "measure", "the next measure: attribution, ablation, contribution, copying", Effect, &[Effect], Shown),
    binding!(&[char(' ')], "Space", Action::DropHead, "drop", "drop the selected head; W undoes it", Effect, &[Effect], WhatIf),
    binding!(&[key(KeyCode::Enter)], "Enter", Action::OpenExcited, "go there", "run the prompt of the selected place, and select its query and key in Head", Prompts, &[Prompts], Shown),
    binding!(&[char('s')], "s", Action::SwapAxes, "swap axes", "exchange the two statistics of the scatter; m chooses the horizontal one", Prompts, &[Prompts], Shown),
    binding!(&[char('r')], "r", Action::RunPrompts, "run again", "run all prompts again: those of --inputs, or the texts of the session", Prompts, &[Prompts], Run),
    binding!(&[key(KeyCode::Up), char('k')], "↑ k", Action::Up, "", "one up", Moving, &[], Nothing),
    binding!(&[key(KeyCode::Down), char('j')], "↓ j", Action::Down, "", "one down", Moving, &[], Nothing),
    binding!(&[key(KeyCode::Left), char('h')], "← h", Action::Left, "", "one to the left", Moving, &[], Nothing),
    binding!(&[key(KeyCode::Right), char('l')], "→ l", Action::Right, "", "one to the right", Moving, &[], Nothing),
    binding!(&[key(KeyCode::PageUp)], "PgUp", Action::PageUp, "", "ten up", Moving, &[], Nothing),
    binding!(&[key(KeyCode::PageDown)], "PgDn", Action::PageDown, "", "ten down", Moving, &[], Nothing),
    binding!(&[char('g')], "g", Action::First, "", "to the first", Moving, &[], Nothing),
    binding!(&[char('G')], "G", Action::Last, "", "to the last; elsewhere G lets the model write", History, &[History], Training),
    binding!(&[char('G')], "G", Action::Write, "", "let the model continue the text; step back through each token", Everywhere, &[Overview, Head, Scores, Tokens, Model, Checks, Compare, Rows, Effect, Panel::Sweep, Panel::Prompts, Story], Writer),
    binding!(&[(KeyCode::End, KeyModifiers::CONTROL)], "Ctrl-End", Action::Last, "", "to the last, in Head too", Moving, &[], Nothing),
    binding!(&[key(KeyCode::Home)], "Home", Action::First, "", "to the first; in Head to the first key", Moving, &[Overview, Scores, Tokens, Model, Checks, Compare, History, Rows, Effect, Panel::Sweep, Panel::Prompts, Story], Nothing),
    binding!(&[key(KeyCode::End)], "End", Action::Last, "", "to the last; in Head to the last key", Moving, &[Overview, Scores, Tokens, Model, Checks, Compare, History, Rows, Effect, Panel::Sweep, Panel::Prompts, Story], Nothing),
    binding!(&[char('o')], "o", Action::NextGrid, "other stack", "encoder, decoder, cross-attention in turn", Moving, &[], Grids),
    binding!(&[char(']')], "]", Action::NextHead, "", "next head, through the layers", Moving, &[], Nothing),
    binding!(&[char('[')], "[", Action::PreviousHead, "", "previous head, through the layers", Moving, &[], Nothing),
    binding!(&[char('}')], "}", Action::NextLayer, "", "same head, next layer", Moving, &[], Nothing),
    binding!(&[char('{')], "{", Action::PreviousLayer, "", "same head, previous layer", Moving, &[], Nothing),
    binding!(&[char('n')], "n", Action::NextMatch, "", "next match, while a list is filtered or after something was found; Esc ends that", Lists, &[], Match),
    binding!(&[char('N')], "N", Action::PreviousMatch, "", "previous match", Lists, &[], Match),
    binding!(&[char(' ')], "Space", Action::MarkHead, "", "mark the selected head, or take its mark back", Lists, &[Overview, Head, Scores, Compare, Rows, Panel::Sweep], Run),
    binding!(&[(KeyCode::Up, KeyModifiers::SHIFT)], "Shift-↑", Action::MarkUp, "", "mark the layers and heads from here to the layer above", Lists, &[Overview, Compare], Run),
    binding!(&[(KeyCode::Down, KeyModifiers::SHIFT)], "Shift-↓", Action::MarkDown, "", "… to the layer below", Lists, &[Overview, Compare], Run),
    binding!(&[(KeyCode::Left, KeyModifiers::SHIFT)], "Shift-←", Action::MarkLeft, "", "… to the head on the left", Lists, &[Overview, Compare], Run),
    binding!(&[(KeyCode::Right, KeyModifiers::SHIFT)], "Shift-→", Action::MarkRight, "", "… to the head on the right", Lists, &[Overview, Compare], Run),
    binding!(&[char('*')], "*", Action::MarkMatches, "", "mark all heads that the filter or the shown type leaves; again takes these marks back", Lists, &[Overview, Effect], Run),
    binding!(&[char('U')], "U", Action::ClearMarks, "", "take all marks back", Lists, &[], Nothing),
    binding!(&[char('D')], "D", Action::DropMarked, "", "drop the marked heads, or the selected one: one what-if of all of them", Lists, &[], WhatIf),
    binding!(&[char('C')], "C", Action::CompareMarked, "", "show the marked heads side by side in Compare; x and X there write them", Lists, &[], Run),
    binding!(&[char('w')], "w", Action::WhatIf, "what if", "what if: change the scale, axis, mask or norm, or drop a head", Everywhere, &[], WhatIf),
    binding!(&[char('v')], "v", Action::NextSide, "A/B", "show B, the difference, and A in turn", Everywhere, &[], Second),
    binding!(&[char('W')], "W", Action::ClearSecond, "A alone", "back to A alone: the checkpoint as it is", Everywhere, &[], Second),
    binding!(&[char('V')], "V", Action::Runs, "", "list the runs of this session: Enter shows one as A, Tab as B", Everywhere, &[], Run),
    binding!(&[char('A')], "A", Action::NextRunA, "", "show the next run of this session as A", Everywhere, &[], Runs),
    binding!(&[char('B')], "B", Action::NextRunB, "", "show the next run of this session as B", Everywhere, &[], Runs),
    binding!(&[char('e')], "e", Action::Edit, "edit text", "edit the text and run it again", Everywhere, &[], AnotherText),
    binding!(&[char('E')], "E", Action::EditSecond, "", "keep the text as A, and edit a second one as B", Everywhere, &[], AnotherPrompt),
    binding!(&[char('x'), (KeyCode::Char('s'), KeyModifiers::CONTROL)], "x", Action::Export, "export", "write the screen as SVG, its data as CSV; Ctrl-S in text fields too", Everywhere, &[], Room),
    binding!(&[char('X')], "X", Action::ExportFigure, "", "write the data alone as a figure for paper, SVG and CSV", Everywhere, &[], Room),
    binding!(&[char('y')], "y", Action::Copy, "copy", "copy the number, the row, the place or the command line of the view", Everywhere, &[], Room),
    binding!(&[char('b')], "b", Action::Bookmark, "", "set a bookmark here, or take it back", Everywhere, &[], Run),
    binding!(&[char('\'')], "'", Action::Bookmarks, "", "jump to a bookmark", Everywhere, &[], Bookmarks),
    binding!(&[char('/')], "/", Action::Find, "find", "filter the list of the panel (!word leaves out); elsewhere find a head (L3H7), a token or a tensor", Everywhere, &[], Searchable),
    binding!(&[char(':')], ":", Action::Palette, "palette", "search everything: panels, statistics, findings, heads, prompts, actions", Everywhere, &[], Nothing),
    binding!(&[char('1')], "1", Action::Go(Overview), "", "layers × heads by one statistic", Everywhere, &[], Nothing),
    binding!(&[char('2')], "2", Action::Go(Head), "", "one head at full resolution", Everywhere, &[], Nothing),
    binding!(&[char('3')], "3", Action::Go(Scores), "", "statistics and distributions of one head", Everywhere, &[], Nothing),
    binding!(&[char('4')], "4", Action::Go(Tokens), "", "the text, shaded, and the model's predictions", Everywhere, &[], Nothing),
    binding!(&[char('5')], "5", Action::Go(Model), "", "how the checkpoint was read", Everywhere, &[], Nothing),
    binding!(&[char('6')], "6", Action::Go(Checks), "", "findings: leaks, collapse and the like", Everywhere, &[], Nothing),
    binding!(&[char('7')], "7", Action::Go(Compare), "", "compare two runs: a what-if, another checkpoint, a trace or another text", Everywhere, &[], Nothing),
    binding!(&[char('8')], "8", Action::Go(Rows), "", "every row of a head in numbers, and why it collapsed", Everywhere, &[], Nothing),
    binding!(&[char('H')], "H", Action::Go(History), "", "steps × heads of a training", Everywhere, &[], Training),
    binding!(&[char('9')], "9", Action::Go(Effect), "", "what heads do: attribution, ablation, contribution, copying, and the lens", Everywhere, &[], Nothing),
    binding!(&[char('T')], "T", Action::Go(Sweep), "", "the softmax of a head's scores, larger and smaller", Everywhere, &[], Nothing),
    binding!(&[char('P')], "P", Action::Go(Panel::Prompts), "", "heads over many prompts: those of --inputs, or the texts of the session", Everywhere, &[], Nothing),
    binding!(&[char('S')], "S", Action::Go(Story), "", "the story of a demo, page by page", Everywhere, &[], Story),
    binding!(&[key(KeyCode::Tab)], "Tab", Action::NextPanel, "", "next panel", Everywhere, &[], Nothing),
    binding!(&[key(KeyCode::BackTab)], "Shift-Tab", Action::PreviousPanel, "", "previous panel", Everywhere, &[], Nothing),
    binding!(&[key(KeyCode::Esc)], "Esc", Action::Back, "", "go back", Everywhere, &[], Nothing),
    binding!(&[char('Z')], "Z", Action::ZoomPane, "", "let the pane with the focus fill the panel; again or Esc shows all panes", Everywhere, &[], Nothing),
    binding!(&[char('.')], ".", Action::FocusNext, "", "give the focus to the next pane of the panel", Everywhere, &[], Nothing),
    binding!(&[char(',')], ",", Action::FocusPrevious, "", "give it to the previous pane", Everywhere, &[], Nothing),
    binding!(&[char(')'), (KeyCode::Right, KeyModifiers::CONTROL)], ")", Action::WidenPane, "", "make the pane with the focus wider; Ctrl-→ too", Everywhere, &[], Nothing),
    binding!(&[char('('), (KeyCode::Left, KeyModifiers::CONTROL)], "(", Action::NarrowPane, "", "make it narrower; Ctrl-← too", Everywhere, &[], Nothing),
    binding!(&[(KeyCode::Down, KeyModifiers::CONTROL)], "Ctrl-↓", Action::HeightenPane, "", "make it higher", Everywhere, &[], Nothing),
    binding!(&[(KeyCode::Up, KeyModifiers::CONTROL)], "Ctrl-↑", Action::LowerPane, "", "make it lower", Everywhere, &[], Nothing),
    binding!(&[char('_')], "_", Action::ResetPanes, "", "give the panes of the panel their usual sizes", Everywhere, &[], Nothing),
    binding!(&[(KeyCode::Left, KeyModifiers::ALT), (KeyCode::Char('o'), KeyModifiers::CONTROL)], "Alt-←", Action::Backward, "", "back to the view before the last jump: panel, place and statistic; Ctrl-O too", Everywhere, &[], Nothing),
    binding!(&[(KeyCode::Right, KeyModifiers::ALT)], "Alt-→", Action::Forward, "", "forward again", Everywhere, &[], Nothing),
    binding!(&[char('u')], "u", Action::Undo, "", "undo the last change of the text, of the what-ifs or of what A is compared with", Everywhere, &[], Nothing),
    binding!(&[(KeyCode::Char('r'), KeyModifiers::CONTROL)], "Ctrl-R", Action::Redo, "", "redo it", Everywhere, &[], Nothing),
    binding!(&[char('c')], "c", Action::StopRun, "", "stop the run that is going", Everywhere, &[], Work),
    binding!(&[char('R')], "R", Action::ReadAgain, "", "read the files and run the text again; r too when files changed", Everywhere, &[], Files),
    binding!(&[char('?')], "?", Action::Help, "help", "this list", Everywhere, &[], Nothing),
    binding!(&[char('q'), (KeyCode::Char('c'), KeyModifiers::CONTROL)], "q", Action::Quit, "quit", "quit at once; Ctrl-C does so everywhere", Everywhere, &[], Nothing),
    binding!(&[(KeyCode::Char('z'), KeyModifiers::CONTROL)], "Ctrl-Z", Action::Stop, "", "back to the shell; fg there returns", Everywhere, &[], Nothing),
];
