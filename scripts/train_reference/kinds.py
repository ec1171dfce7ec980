# SPDX-License-Identifier: Apache-2.0
"""The kinds of eyes, by the name that train_vlm.py takes and by the model_type of their files."""
import qwen
import vlm

EYES = {"clip": vlm.Eyes, "qwen": qwen.Eyes}
OF_FILES = {"llava": vlm.Eyes, "qwen2_vl": qwen.Eyes}
