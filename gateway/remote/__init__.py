"""`prefix-gateway mark`, `compare` and `explain`: commands that ask a running gateway's admin port."""

from gateway.remote.command import compare as compare
from gateway.remote.command import explain as explain
from gateway.remote.command import mark as mark
