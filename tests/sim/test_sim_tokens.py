import subprocess
import sys

from gateway.sim.tokens import detokenize, render_chat, render_tool_call, tokenize, words


def test_four_bytes_are_one_token_and_the_rest_another():
    assert len(tokenize("abcdefgh")) == 2
    assert len(tokenize("abcdefghi")) == 3
    assert tokenize("") == ()


def test_text_comes_back_from_its_tokens():
    text = "<|user|>naïve 漢字 text<|end|>more"
    assert detokenize(tokenize(text)) == text


def test_a_growing_conversation_keeps_its_tokens():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi there"}]
    first = tokenize(render_chat(messages))
    answer = words(first, 0, 5)
    messages += [{"role": "assistant", "content": "".join(answer)}, {"role": "user", "content": "And?"}]
    second = tokenize(render_chat(messages))
    so_far = (*first, *(token for word in answer for token in tokenize(word)))
    assert second[: len(so_far)] == so_far


def test_a_tool_call_in_the_history_has_the_tokens_it_was_produced_with():
    call = {"function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}
    history = tokenize(render_chat([{"role": "assistant", "content": None, "tool_calls": [call]}]))
    produced = tokenize(render_tool_call("get_weather", '{"city":"Paris"}'))
    assert history[1 : 1 + len(produced)] == produced


def test_tools_stand_after_the_system_message():
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    text = render_chat(messages, [{"name": "t"}], add_generation_prompt=False)
    assert text == '<|system|>S<|end|><|tools|>[{"name":"t"}]<|end|><|user|>U<|end|>'


def test_content_parts_are_read():
    parts = [{"type": "text", "text": "look "}, {"type": "image_url", "image_url": {"url": "x"}}]
    text = render_chat([{"role": "weird", "content": parts}], add_generation_prompt=False)
    assert text.startswith("<|user|>look <|image|>")


def test_words_are_the_same_in_another_process_and_differ_by_choice():
    here = words((1, 2, 3), 0, 8)
    code = "from gateway.sim.tokens import words; print(repr(words((1, 2, 3), 0, 8)))"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == repr(here)
    assert here != words((1, 2, 3), 1, 8)
    assert all(len(tokenize(word)) == 1 for word in here)
