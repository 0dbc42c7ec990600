//! A scenario file as written: which keys there are, each value in its own notation and with its place in the text. What is
//! missing is still missing; [`super::resolve`] fills in defaults and checks what concerns more than one value.
//!
//! The comments here are what editors show: the JSON Schema is made from these types.

use crate::quantity::{Amount, Misread, Quantity};
use narrows_core::units::{Bytes, Rate};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::time::Duration;

/// What to run: hosts, routers, links and flows.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Narrows scenario")]
pub struct File {
    /// The run as a whole.
    #[serde(default)]
    pub run: Option<At<Run>>,
    /// What to record beside the summaries.
    #[serde(default)]
    pub record: Option<Record>,
    /// Where flows begin and end.
    #[serde(default)]
    pub host: Vec<At<Host>>,
    /// What forwards.
    #[serde(default)]
    pub router: Vec<At<Router>>,
    /// Two lines, one in each direction, between two nodes.
    #[serde(default)]
    pub link: Vec<At<Link>>,
    /// Who sends what to whom.
    #[serde(default)]
    pub flow: Vec<At<Flow>>,
    /// Keys that take several values one after the other: `"flow.bulk.window" = ["30kB", "90kB"]`, or
    /// `{ from = "30kB", to = "350kB", step = "10kB" }`, or with `count = 20` and perhaps `scale = "log"` in place of `step`.
    /// All combinations are run, the last key varying fastest. The keys of one `[[sweep.together]]` advance in step.
    #[serde(default)]
    #[schemars(with = "Option<std::collections::BTreeMap<String, serde_json::Value>>")]
    pub sweep: Option<At<Setting>>,
}

/// The run as a whole.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// A short name; the file's name if not given.
    pub name: Option<At<String>>,
    /// One line for people.
    pub title: Option<String>,
    /// When the run ends at the latest. May be left out if every flow has a size: then 1h.
    pub duration: Option<Written<Duration>>,
}

/// What to record beside the summaries.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Per-flow series and events; default false.
    #[serde(default)]
    pub flows: bool,
    /// Per-queue series; default false.
    #[serde(default)]
    pub queues: bool,
    /// Interval over which rates are averaged; default 30ms.
    pub rate_interval: Option<Written<Duration>>,
}

/// Where flows begin and end.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name.
    pub name: At<String>,
    /// Phase of the machine's coarse timers against the start of the run; drawn from the seed if not given.
    pub timer_phase: Option<Written<Duration>>,
}

/// What forwards.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Router {
    /// Its name.
    pub name: At<String>,
}

/// Two lines, one in each direction, between two nodes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its name; `from>to` if not given.
    pub name: Option<At<String>>,
    /// The node it begins at.
    pub from: At<String>,
    /// The node it ends at.
    pub to: At<String>,
    /// Rate of whole IP packets.
    pub rate: Written<Rate>,
    /// One-way propagation delay.
    pub delay: Written<Duration>,
    /// Largest IP packet; default 1500B.
    pub mtu: Option<Written<Bytes>>,
    /// How packets are framed, in both directions: none (the default: rates are of IP packets), ethernet, frame-relay or ppp.
    pub framing: Option<At<String>>,
    /// Whether a host before the line holds its senders back while the queue has no room, rather than drop; default false.
    pub back_pressure: Option<At<bool>>,
    /// What waits before the line, in both directions; default fifo:1000p.
    #[serde(default)] // says to the schema, too, that it may be left out
    #[schemars(schema_with = "crate::schema::queue")]
    pub queue: Option<At<Setting>>,
    /// Classes of packets, in both directions; default none: each flow is one. What belongs to none is in the last one, `rest`.
    pub class: Option<Vec<At<Class>>>,
    /// What the router before the line writes into ACKs that pass it, in both directions; default none.
    #[serde(default)] // says to the schema, too, that it may be left out
    #[serde(alias = "ack-window")]
    #[schemars(schema_with = "crate::schema::ack_window")]
    pub ack_window: Option<At<Setting>>,
    /// Changes during the run, in both directions.
    pub change: Option<Vec<At<Change>>>,
    /// What differs from `to` back to `from`.
    pub backward: Option<Backward>,
}

/// What differs in the other direction of a link.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct Backward {
    /// Rate of whole IP packets.
    pub rate: Option<Written<Rate>>,
    /// One-way propagation delay.
    pub delay: Option<Written<Duration>>,
    /// Largest IP packet.
    pub mtu: Option<Written<Bytes>>,
    /// What waits before the line.
    #[serde(default)] // says to the schema, too, that it may be left out
    #[schemars(schema_with = "crate::schema::queue")]
    pub queue: Option<At<Setting>>,
    /// Classes of packets, in place of those of the link; [] for none.
    pub class: Option<Vec<At<Class>>>,
    /// What the router before the line writes into ACKs that pass it.
    #[serde(default)] // says to the schema, too, that it may be left out
    #[serde(alias = "ack-window")]
    #[schemars(schema_with = "crate::schema::ack_window")]
    pub ack_window: Option<At<Setting>>,
    /// Changes during the run, in place of those of the link.
    pub change: Option<Vec<At<Change>>>,
}

/// A part of the packets before a line, and what is promised to it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Its name.
    pub name: At<String>,
    /// Which packets: flows by name, with * for all that begin so; in a gateway tables of source, destination, protocol,
    /// source_port, destination_port and dscp. Left out in the last class, which has what belongs to no other.
    #[serde(default, rename = "match")] // says to the schema, too, that it may be left out
    #[schemars(schema_with = "crate::schema::pattern")]
    pub pattern: Option<At<Setting>>,
    /// The rate it has reserved; default none.
    pub rate: Option<Written<Rate>>,
    /// How far it may be ahead of constant spacing at its rate; default, and at least, a packet.
    pub ahead: Option<Written<Bytes>>,
    /// How long a packet within rate and ahead takes at the most, its transmission included; default what the rate gives.
    pub delay: Option<Written<Duration>>,
    /// 1 goes first; default 8, the last.
    #[schemars(range(min = 1, max = 8))]
    pub priority: Option<At<i64>>,
    /// Its share against those of others; default 1.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub weight: Option<At<i64>>,
    /// Room for its waiting packets; default what the queue gives each class.
    pub limit: Option<Written<Amount>>,
    /// Whether it may have more than it has reserved; default true.
    pub surplus: Option<bool>,
}

/// A line changes during the run.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// When.
    pub at: Written<Duration>,
    /// The rate from then on.
    pub rate: Option<Written<Rate>>,
    /// The one-way delay from then on.
    pub delay: Option<Written<Duration>>,
}

/// Who sends what to whom.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Its name; flow-1, flow-2, ... if not given.
    pub name: Option<At<String>>,
    /// The host that sends.
    pub from: At<String>,
    /// The host that receives.
    pub to: At<String>,
    /// tcp (the default) or udp.
    #[schemars(with = "Option<Speech>")]
    pub transport: Option<At<String>>,
    /// When it starts; default 0s.
    pub start: Option<Written<Duration>>,
    /// When it stops offering data; default never.
    pub stop: Option<Written<Duration>>,
    /// So many alike flows, called NAME-1, NAME-2, ...; default 1.
    #[schemars(range(min = 1, max = 100_000))]
    pub count: Option<At<i64>>,
    /// Time between the starts of these flows; default 0s.
    pub stagger: Option<Written<Duration>>,
    /// It starts later by up to this, drawn from the seed for each flow; default 0s.
    pub jitter: Option<Written<Duration>>,
    /// tcp: application bytes to send; default endless.
    pub size: Option<Written<Bytes>>,
    /// tcp: the sender's stack; default rfc.
    #[serde(default)] // says to the schema, too, that it may be left out
    #[schemars(schema_with = "crate::schema::stack")]
    pub stack: Option<At<Setting>>,
    /// tcp: the receiver's stack; default the sender's.
    #[serde(default)] // says to the schema, too, that it may be left out
    #[schemars(schema_with = "crate::schema::stack")]
    pub receiver_stack: Option<At<Setting>>,
    /// tcp: the sender's congestion control; default reno.
    #[serde(default)] // says to the schema, too, that it may be left out
    #[schemars(schema_with = "crate::schema::controller")]
    pub controller: Option<At<Setting>>,
    /// tcp: the kernel's congestion control of this name, on host linux; the other hosts run `controller`.
    #[schemars(with = "Option<String>", regex(pattern = "^[A-Za-z0-9_.-]{1,15}$"))]
    pub kernel_controller: Option<At<String>>,
    /// tcp: the receiver's buffer, hence the largest window; default 1MiB. In BDP: slowest rate on the way there, times the
    /// round-trip propagation delay.
    pub window: Option<Written<Amount>>,
    /// tcp: the sender's buffer, what may be unacknowledged; default twice the window.
    pub send_buffer: Option<Written<Amount>>,
    /// tcp: largest payload; default what the MTUs on the way leave.
    pub mss: Option<Written<Bytes>>,
    /// udp: rate of whole IP packets.
    pub rate: Option<Written<Rate>>,
    /// udp: size of one IP packet; default the smallest MTU on the way.
    pub packet: Option<Written<Bytes>>,
    /// udp: when it is on, as pairs of from and until: [["0s", "10s"], ["20s", "40s"]]; default always.
    pub on: Option<Vec<At<Interval>>>,
}

/// The values of `transport`, for the schema.
#[derive(JsonSchema)]
#[schemars(inline, rename_all = "lowercase")]
#[allow(dead_code)] // the reader takes any word, to say more about a wrong one
enum Speech {
    Tcp,
    Udp,
}

/// A value and where it stands in the text.
#[derive(Clone, Debug)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where, in bytes.
    pub span: Range<usize>,
}

impl<T> Deref for At<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let spanned = toml::Spanned::<T>::deserialize(d)?;
        Ok(At { span: spanned.span(), value: spanned.into_inner() })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// From when, until when.
pub type Interval = (Written<Duration>, Written<Duration>);

/// A quantity in its notation, and where it stands in the text.
pub type Written<Q> = At<Notation<Q>>;

/// A quantity in its notation.
#[derive(Clone, Copy, Debug)]
pub struct Notation<Q>(pub Q);

impl<'de, Q: Quantity> Deserialize<'de> for Notation<Q> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Reader<Q>(PhantomData<Q>);
        fn refuse<E: de::Error>(m: Misread) -> E {
            E::custom(format_args!("{}\n{}", m.message, m.advice))
        }
        impl<Q: Quantity> Visitor<'_> for Reader<Q> {
            type Value = Notation<Q>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} like \"10{}\"", Q::NOUN, Q::UNIT)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Q::read(text).map(Notation).map_err(refuse)
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Self::Value, E> {
                Err(refuse(Q::unitless(&n.to_string())))
            }
            fn visit_f64<E: de::Error>(self, x: f64) -> Result<Self::Value, E> {
                Err(refuse(Q::unitless(&x.to_string())))
            }
        }
        d.deserialize_any(Reader(PhantomData))
    }
}

impl<Q: Quantity> JsonSchema for Notation<Q> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        Q::NOUN.into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": Q::PATTERN, "examples": [format!("10{}", Q::UNIT)] })
    }
}

/// A key and its value.
pub type Entry = (At<String>, At<Setting>);

/// Whatever an algorithm takes; what it must be is known only once the algorithm is.
#[derive(Clone, Debug)]
pub enum Setting {
    /// `"30ms"`
    Text(String),
    /// `4`
    Whole(i64),
    /// `1.25`
    Fraction(f64),
    /// `true`
    Flag(bool),
    /// `[3, 4, 9]`
    List(Vec<At<Setting>>),
    /// `{ name = "becc", trigger = 3 }`, in the order of the text.
    Table(Vec<Entry>),
}

impl Setting {
    /// What it is, for messages.
    pub fn noun(&self) -> &'static str {
        match self {
            Setting::Text(_) => "a text",
            Setting::Whole(_) => "a whole number",
            Setting::Fraction(_) => "a number",
            Setting::Flag(_) => "true or false",
            Setting::List(_) => "a list",
            Setting::Table(_) => "a table",
        }
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Setting;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, true, false, a list or a table")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Setting, E> {
                Ok(Setting::Text(text.into()))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Setting, E> {
                Ok(Setting::Whole(n))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Setting, E> {
                i64::try_from(n).map(Setting::Whole).map_err(|_| E::custom(format_args!("{n} is too large")))
            }
            fn visit_f64<E: de::Error>(self, x: f64) -> Result<Setting, E> {
                Ok(Setting::Fraction(x))
            }
            fn visit_bool<E: de::Error>(self, b: bool) -> Result<Setting, E> {
                Ok(Setting::Flag(b))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Setting, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Setting::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Setting, A::Error> {
                let mut entries = Vec::new();
                while let Some((key, value)) = table.next_entry::<At<String>, At<Setting>>()? {
                    // Dates arrive as tables with a key no file can contain.
                    if key.starts_with("$__toml") {
                        return Err(A::Error::custom(
                            "a date has no meaning here\nwrite a quantity like \"30ms\"",
                        ));
                    }
                    entries.push((key, value));
                }
                entries.sort_by_key(|(key, _)| key.span.start);
                Ok(Setting::Table(entries))
            }
        }
        d.deserialize_any(Reader)
    }
}
