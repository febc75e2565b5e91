//! The user's own commands that bring faults about on a server that acidtest has not started.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Disruption;

/// Commands for a shell, by what they do to the user's own server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Commands {
    /// Kills the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<String>,
    /// Stops it in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Starts it again, after it was killed or stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Makes it stand still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<String>,
    /// Lets it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

impl Commands {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All of them, each with its name.
    #[must_use]
    pub fn all(&self) -> [(&'static str, Option<&str>); 5] {
        let Self { kill, stop, start, pause, resume } = self;
        [("kill", kill), ("stop", stop), ("start", start), ("pause", pause), ("resume", resume)]
            .map(|(name, command)| (name, command.as_deref()))
    }

    /// The names of the commands that a disruption takes: the one that begins it, and the one that ends it. None for
    /// what is done to clients, or to a cluster of acidtest's own.
    #[must_use]
    pub fn wanted(disruption: Disruption) -> Option<[&'static str; 2]> {
        match disruption {
            Disruption::Kill { .. } => Some(["kill", "start"]),
            Disruption::Restart => Some(["stop", "start"]),
            Disruption::Pause { .. } => Some(["pause", "resume"]),
            // what it takes several servers for is done to those of acidtest's own
            Disruption::Lose | Disruption::Cut { .. } | Disruption::Disconnect | Disruption::Stall { .. } => {
                None
            }
        }
    }

    /// The command of this name, such as `kill`; none if the user gave none, or there is no such name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all().into_iter().find(|(known, _)| *known == name).and_then(|(_, command)| command)
    }
}
