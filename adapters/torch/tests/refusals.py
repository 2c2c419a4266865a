"""What scripts about graphs begin with."""

# Defines `refused`, which wants a call to fail during a capture with these words, and the device to work after it.
REFUSED = """
def refused(what, call):
    graph = torch.flagos.Graph()
    try:
        with torch.flagos.graph(graph):
            call()
    except NotImplementedError as error:
        said = str(error)
        assert all(word in said for word in what.split("|")), said
    else:
        raise AssertionError(f"done: {what}")
    assert not torch.flagos.is_current_stream_capturing()
    torch.flagos.synchronize()
    try:
        graph.replay()
    except ValueError as error:
        assert "has not been captured" in str(error)
    else:
        raise AssertionError("the graph is not empty")
"""
