//! The source of instances, as a flag of `start` and `run`.

use placement::RunSource;
use serde_json::{Value, json};

use crate::context::Usage;

/// The archive that each instance gets.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct SourceArgs {
    /// Unpack the archive (tar, tar.gz) at this address, http or https, into each instance's directory
    #[arg(long, value_name = "URL", requires = "sha256")]
    source: Option<String>,
    /// SHA-256 of the archive, as sha256sum prints it
    #[arg(long, value_name = "HEX", requires = "source")]
    sha256: Option<String>,
}

impl SourceArgs {
    /// Returns the source in the form of a request.
    pub(crate) fn source(&self) -> Option<RunSource> {
        let (url, sha256) = self.source.clone().zip(self.sha256.clone())?;
        Some(RunSource { url, sha256 })
    }

    /// Puts it into every request of a file, replacing its own.
    pub(crate) fn put_into(&self, text: String) -> anyhow::Result<String> {
        let Some(source) = self.source() else {
            return Ok(text);
        };
        // whoever reads the request next reports what is wrong with it
        let Ok(mut request) = serde_json::from_str::<Value>(&text) else {
            return Ok(text);
        };
        let requests = match &mut request {
            Value::Array(many) => many.as_mut_slice(),
            one => std::slice::from_mut(one),
        };
        for request in requests {
            let run = request.get_mut("run").and_then(Value::as_object_mut);
            let run = run.ok_or_else(|| {
                Usage::because("--source: a request has no run; expected run.command in each request of the file")
            })?;
            run.insert("source".into(), json!(source));
        }
        Ok(request.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_of_a_file_gets_it() {
        let args = SourceArgs {
            source: Some("http://a/b".into()),
            sha256: Some("0f".repeat(32)),
        };
        let put = |text: &str| args.put_into(text.into()).map_err(|e| e.to_string());
        let one = put(r#"{"app":"a","run":{"command":["x"]}}"#).unwrap();
        let one: Value = serde_json::from_str(&one).unwrap();
        assert_eq!(one["run"]["source"], json!(args.source()));
        let many = put(r#"[{"run":{}},{"run":{"source":{"url":"http://other"}}}]"#).unwrap();
        let many: Value = serde_json::from_str(&many).unwrap();
        for request in many.as_array().unwrap() {
            assert_eq!(request["run"]["source"]["url"], "http://a/b");
        }
        assert!(put(r#"{"app":"a"}"#).unwrap_err().starts_with("--source: "));
        assert_eq!(put("{").unwrap(), "{");
        let none = SourceArgs::default().put_into("{}".into()).unwrap();
        assert_eq!(none, "{}");
    }
}
