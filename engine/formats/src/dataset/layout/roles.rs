//! Who says a message, under the names that data sets use.

use super::{Bad, Reading};
use protocol::Code;

/// Who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    System,
    User,
    Assistant,
    Tool,
    /// An assistant's call of a tool, written as the text of a message.
    FunctionCall,
}

impl Role {
    /// By one of `protocol::rows::ROLES`.
    fn of(name: &str) -> Option<Role> {
        Some(match name {
            "system" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            "function_call" => Role::FunctionCall,
            _ => return None,
        })
    }

    /// By the name that data sets give it.
    fn known(name: &str) -> Option<Role> {
        let name = name.trim().to_ascii_lowercase();
        // "chatbot" is "bot", and so on.
        Some(match name.strip_prefix("chat").unwrap_or(&name) {
            "system" | "developer" => Role::System,
            "user" | "human" | "prompter" => Role::User,
            "assistant" | "gpt" | "bot" | "model" | "ai" | "bard" | "bing" => Role::Assistant,
            "tool" | "observation" | "function" | "ipython" | "tool_response" | "tool_result" | "tool_results"
            | "function_response" | "function-response" => Role::Tool,
            "function_call" | "function-call" | "tool_call" | "tool-call" | "tool_calls" => Role::FunctionCall,
            _ => return None,
        })
    }

    /// The word of templates.
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant | Role::FunctionCall => "assistant",
            Role::Tool => "tool",
        }
    }
}

impl Reading<'_> {
    /// Whose a message is: as the job says, else as data sets use the name.
    pub(super) fn role(&self, name: &str) -> Result<Role, Bad> {
        let own = self.rules.roles.get(name).and_then(|role| Role::of(role));
        own.or_else(|| Role::known(name)).ok_or_else(|| {
            let short: String = name.chars().take(60).collect();
            (Code::UnknownRole, format!("the role \"{}\" is not known", short.escape_debug()))
        })
    }
}
