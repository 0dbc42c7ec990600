//! One clear error: what is wrong, where in the text, and what to write instead.

use crate::quantity::Misread;
use miette::{Diagnostic, NamedSource, SourceSpan};
use std::ops::Range;

/// Why a scenario file cannot be run. `miette` draws it with the line in question.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error(transparent)]
#[diagnostic(transparent)]
pub struct Error(Box<Report>);

#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
struct Report {
    message: String,
    #[source_code]
    text: NamedSource<String>,
    #[label("here")]
    span: Option<SourceSpan>,
    #[help]
    help: Option<String>,
}

impl Error {
    /// The part of the text in question, in bytes.
    pub fn span(&self) -> Option<Range<usize>> {
        self.0.span.map(|s| s.offset()..s.offset() + s.len())
    }
    /// What to write instead.
    pub fn advice(&self) -> Option<&str> {
        self.0.help.as_deref()
    }
    /// The line in question, counted from 1.
    pub fn line(&self) -> Option<usize> {
        let before = self.0.text.inner().get(..self.span()?.start)?;
        Some(1 + before.bytes().filter(|b| *b == b'\n').count())
    }
}

/// An [`Error`] before it is known which text it is about.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub message: String,
    pub advice: String,
    pub span: Option<Range<usize>>,
}

impl Refusal {
    /// `message` says what is wrong, `advice` what to write instead.
    pub fn new(message: impl Into<String>, advice: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), advice: advice.into(), span: None }
    }

    /// It is about this part of the text.
    pub fn at(self, span: &Range<usize>) -> Refusal {
        Refusal { span: Some(span.clone()), ..self }
    }

    /// `name` is not among `known`.
    pub fn unknown<'a>(noun: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Refusal {
        let known: Vec<&str> = known.into_iter().collect();
        let listed = match known.len() {
            0 => "there is none here".to_string(),
            1..=24 => format!("known: {}", known.join(", ")),
            n => format!("{n} are known, among them {}", known[..8].join(", ")),
        };
        let advice = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"? ({listed})"),
            None => listed,
        };
        Refusal::new(format!("unknown {noun} \"{}\"", shortened(name)), advice)
    }

    /// It is about `text`, which is called `name`.
    pub fn within(self, name: &str, text: &str) -> Error {
        // A label needs at least one character to point at, and must stay within the text.
        let span = self.span.map(|s| {
            let start = s.start.min(text.len());
            SourceSpan::from(start..s.end.clamp(start, text.len()))
        });
        let help = Some(self.advice).filter(|a| !a.is_empty());
        let text = NamedSource::new(name, text.to_string());
        Error(Box::new(Report { message: self.message, text, span, help }))
    }
}

impl From<Misread> for Refusal {
    fn from(m: Misread) -> Refusal {
        Refusal::new(m.message, m.advice)
    }
}

/// What the TOML reader says, with a suggestion where it lists what it knows.
impl From<toml::de::Error> for Refusal {
    fn from(error: toml::de::Error) -> Refusal {
        let message = error.message();
        // Messages of our own types carry their advice behind a line break; those of the reader never do.
        let (first, advice) = message.split_once('\n').unwrap_or((message, ""));
        let names: Vec<&str> = first.split('`').skip(1).step_by(2).collect();
        let refusal = match (first, &names[..]) {
            (m, [unknown, known @ ..]) if m.starts_with("unknown field") => {
                Refusal::unknown("key", unknown, known.iter().copied())
            }
            (m, [missing]) if m.starts_with("missing field") => {
                Refusal::new(format!("`{missing}` is missing"), format!("add a line with {missing} = ..."))
            }
            (m, _) => Refusal::new(m, advice),
        };
        Refusal { span: error.span(), ..refusal }
    }
}

/// The known name that `name` was probably meant to be: alike from the start on, or one slip away.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = shortened(&name.to_lowercase());
    let likeness = |known: &str| {
        let one_slip = name.chars().count() > 1 && strsim::damerau_levenshtein(&name, known) == 1;
        strsim::jaro_winkler(&name, known).max(if one_slip { 0.8 } else { 0.0 })
    };
    let scored = known.into_iter().map(|k| (likeness(&k.to_lowercase()), k));
    scored.filter(|(score, _)| *score > 0.75).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, k)| k)
}

/// Names in messages stay short whatever the input.
pub(crate) fn shortened(name: &str) -> String {
    name.chars().take(64).collect()
}
