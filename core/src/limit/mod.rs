//! Limits on a rate: when may the next packet leave? A limit is arithmetic on time and bytes and knows of no queue; a discipline of
//! [`crate::qdisc`] that shapes is a limit and places to wait.
//!
//! There is one law, the credit bucket: credit comes at rate r, at most `depth` bytes of it are kept, and a packet that leaves takes
//! its size. What it is called depends on the depth:
//!
//! * *Leaky bucket*: no depth. Packets leave with constant spacing, size / r apart, and none ahead of that.
//! * *Token bucket* (r, b): depth b. After a silence b bytes leave at once; a packet larger than b never would.
//! * *Work-ahead* (Y. Hisada, S. Ono, about 1997, section 2): depth W, by which frames may be ahead of constant spacing. Two frames of
//!   512 bytes with their 1 kbyte.
//!
//! What can be promised to traffic that keeps to such a limit is [`calculus`].

mod bucket;
pub mod calculus;

pub use bucket::Bucket;
