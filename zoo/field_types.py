"""The former name of `zoo.fields`."""

from zoo.fields import *  # noqa: F403
