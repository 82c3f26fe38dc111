"""Something that Python does: what roots without torch have to show."""
import json

assert json.loads(json.dumps([1])) == [1]
